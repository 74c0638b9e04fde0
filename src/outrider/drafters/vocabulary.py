"""Which tokens a draft model may propose, and what they are called in the target's vocabulary.

A shortlist may leave out draft ids (they are simply not proposed), and ids may differ between the two models. The
draft's law is then the law over what is left, in the target's ids: whatever it is, it is the law that tokens are drawn
from, so every rule stays exact. Source of trimmed vocabularies: Zhao et al., "FR-Spec" (2025); of intersections: Timor
et al., "Accelerating LLM Inference with Lossless Speculative Decoding for Heterogeneous Vocabularies" (2025).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from outrider.drafters.spelling import spell
from outrider.errors import OptionError
from outrider.files import user_path
from outrider.prompts import load_prompts
from outrider.targets.base import TargetInfo, Tokenizer


class Vocabulary:
    """Proposable tokens: draft_ids[i] is called target_ids[i] by the target, which has vocab_size tokens.

    draft_ids None: both models call every token the same; ids that only one of them has are passed over.
    head_only: column i of the draft's logits speaks of draft_ids[i], because its head has no other rows.
    """

    def __init__(
        self,
        vocab_size: int,
        draft_ids: Sequence[int] | None = None,
        target_ids: Sequence[int] | None = None,
        *,
        head_only: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        self._vocab_size = vocab_size
        self.draft_ids = draft_ids
        self._to_draft: dict[int, int] | None = None
        self._columns: Tensor | None = None
        if draft_ids is not None:
            names = draft_ids if target_ids is None else target_ids
            self._to_draft = dict(zip(names, draft_ids, strict=True))
            self._places = torch.tensor(names, dtype=torch.long, device=device)
            if not head_only:
                self._columns = torch.tensor(draft_ids, dtype=torch.long, device=device)

    def spread(self, logits: Float[Tensor, "n K"]) -> Float[Tensor, "n V"]:
        """The draft's logits in the target's ids; -inf for what cannot be proposed."""
        if self._to_draft is None:
            missing = self._vocab_size - logits.shape[-1]
            if missing > 0:
                return torch.nn.functional.pad(logits, (0, missing), value=float("-inf"))
            return logits[:, : self._vocab_size]
        chosen = self.select(logits)
        return logits.new_full((len(logits), self._vocab_size), float("-inf")).index_copy_(1, self._places, chosen)

    def select(self, logits: Float[Tensor, "n K"]) -> Float[Tensor, "n M"]:
        """The columns of the proposable tokens, in the order of draft_ids; all if that is None."""
        return logits if self._columns is None else logits[:, self._columns]

    def to_draft(self, token: int) -> int:
        """What the draft model calls a proposed token."""
        return token if self._to_draft is None else self._to_draft[token]


def shared_tokens(draft: Tokenizer, draft_info: TargetInfo, target: Tokenizer, info: TargetInfo) -> dict[int, int]:
    """{draft id: target id} of the tokens that stand for the same bytes in both vocabularies; and of the end tokens."""
    wanted = spell(target)
    pairs = {
        draft_id: wanted[text]
        for text, draft_id in spell(draft).items()
        if text in wanted and draft_id < draft_info.vocab_size and wanted[text] < info.vocab_size
    }
    for draft_id, target_id in zip(draft_info.eos_token_ids[:1], info.eos_token_ids[:1], strict=False):
        if draft_id not in pairs and target_id not in pairs.values():
            pairs[draft_id] = target_id
    return pairs


def shortlist(count: int, info: TargetInfo, tokenizer: Tokenizer | None, text: str) -> list[int]:
    """`count` ids, ascending: end tokens, then the most frequent of `text`, then the lowest, which BPE made first."""
    seen = Counter(tokenizer.encode(text, add_special_tokens=False)) if tokenizer else Counter[int]()
    frequent = sorted(seen, key=lambda token_id: (-seen[token_id], token_id))
    order = dict.fromkeys([*info.eos_token_ids, *frequent, *range(info.vocab_size)])
    return sorted([token_id for token_id in order if token_id < info.vocab_size][:count])


def sample_text(file: str | None = None) -> str:
    """The text whose tokens count: a file's, or that of the project's own prompts. Raises OptionError."""
    if file is None:
        return _own_text()
    try:
        return user_path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read draft_vocab_text {file!r} as text: {error}") from error


@cache
def _own_text() -> str:
    messages = [message for one in load_prompts() for message in one.prompt]
    return "\n".join(str(message["content"]) for message in messages if isinstance(message, Mapping))
