"""`outrider chat`: a conversation in the terminal, each turn computing only what is new."""

from outrider.chat.conversation import Conversation

__all__ = ["Conversation"]
