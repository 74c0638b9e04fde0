"""From tokens to text as a reader sees it: never half a character, and the earliest stop string wherever it lies.

Tokens cannot be decoded one by one: a character may span several, a leading space depends on what came before, and
where bytes stand for rare characters ("byte fallback") one bad byte turns its whole run of byte tokens into U+FFFD.
So a small window of tokens is decoded, and text is released once no token that may follow can change it. Nothing here
knows about models or rounds. For each committed token:

    released = checker.push(stream.push(token_id), stream.pending)
"""

import copy
from collections.abc import Sequence
from typing import Any

from outrider.targets.base import Tokenizer

_UNKNOWN = "\ufffd"
_TRIM_AT = 12  # tokens in the window before it is first shortened
_LONGEST_RUN = 64  # tokens of a run of byte tokens before its whole characters are released all the same
_RARE = "\U000e0800"  # a character that no vocabulary holds: its bytes are F3 A0 A0 80


class TextStream:
    """Joined, the pieces equal tokenizer.decode(all ids); the cost of a token does not grow with the text.

    One exception: in a run of more than 64 byte tokens of a byte-fallback tokenizer whole characters are shown before
    the run ends, so if it is broken later they are not turned into U+FFFD, as decoding everything at once would.
    Copies share the tokenizer and nothing that changes.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._byte_tails = _byte_tails(tokenizer)
        self._tails = (*self._byte_tails, _encode(tokenizer, _RARE)[1:], _encode(tokenizer, " a"))
        self._window: tuple[int, ...] = ()
        self._text = ""  # the window's text, of which the first _shown characters are released
        self._shown = 0
        self._trim_at = _TRIM_AT

    def push(self, token_id: int) -> str:
        """Text that is certain now and was not before; often "", sometimes several characters."""
        self._window = (*self._window, token_id)
        self._text = self._decode(self._window)
        piece = self._release(self._certain())
        if len(self._window) >= self._trim_at and self._text[self._shown :] in ("", _UNKNOWN):
            self._trim(self._text[self._shown :])
        elif len(self._window) >= _LONGEST_RUN and self.pending == self._text[self._shown :] != "":
            piece += self._cut_run()
        return piece

    def flush(self) -> str:
        """The rest, at the end of the text; an unfinished character comes as U+FFFD."""
        return self._release(len(self._text))

    @property
    def pending(self) -> str:
        """Whole characters withheld because a later token might change them; they stand if the text ends here."""
        return self._text[self._shown :].rstrip(_UNKNOWN)

    def __deepcopy__(self, memo: dict[int, Any]) -> "TextStream":
        return copy.copy(self)  # all that changes is immutable, and the tokenizer is shared

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=self._skip)

    def _release(self, end: int) -> str:
        piece = self._text[self._shown : end]
        self._shown = max(self._shown, end)
        return piece

    def _certain(self) -> int:
        """How many characters of the window's text no later token can change."""
        if not self._byte_tails:
            return len(self._text) - self._text.endswith(_UNKNOWN)  # the last may be a character begun
        tails = self._byte_tails if self._text.endswith(_UNKNOWN) else self._byte_tails[:1]
        return _shared([self._text, *(self._decode((*self._window, *tail)) for tail in tails)])

    def _trim(self, withheld: str) -> None:
        """Keep only as many of the newest tokens as decode what follows in the same way; if none do, try later."""
        after = [self._suffix(self._window, tail) for tail in self._tails]
        for size in (1, 2, 4, 8):
            context = self._window[-size:]
            same = after == [self._suffix(context, tail) for tail in self._tails]
            if same and self._decode(context).endswith(withheld):
                self._restart(context, len(withheld))
                return
        self._trim_at *= 2

    def _suffix(self, ids: tuple[int, ...], tail: tuple[int, ...]) -> str | None:
        """What the tail adds to the text of ids; None if it changes that text."""
        text, longer = self._decode(ids), self._decode((*ids, *tail))
        return longer[len(text) :] if longer.startswith(text) else None

    def _cut_run(self) -> str:
        """Release a long run of byte tokens up to here, and start again from its last character."""
        piece = self.flush()
        for size in range(1, 5):
            context = self._decode(self._window[-size:])
            if context and _UNKNOWN not in context and self._text.endswith(context):
                self._restart(self._window[-size:])
                break
        return piece

    def _restart(self, context: tuple[int, ...], num_withheld: int = 0) -> None:
        self._window, self._text = context, self._decode(context)
        self._shown, self._trim_at = len(self._text) - num_withheld, _TRIM_AT


class StopChecker:
    """Finds the stop string that ends first, however the text is cut into pieces; of those that end there the longest.

    Text that may be the beginning of a stop is held back. After a match nothing more is released. include_stop: the
    stop string itself is released too.
    """

    def __init__(self, stop: tuple[str, ...], include_stop: bool = False) -> None:
        self._stop = stop
        self._include = include_stop
        self._reach = max(map(len, stop), default=1) - 1  # characters a stop can begin before a piece
        self._seen = ""  # the last _reach characters, and all that is held back
        self._held = 0  # characters at the end of _seen that are not released
        self.matched: str | None = None

    def push(self, piece: str, pending: str = "") -> str:
        """Take the next piece of text; returns what may be shown.

        pending: text that stands only if the text ends here (TextStream.pending). A stop that it completes counts, for
        then the text does end here; otherwise it is forgotten and must come again as a piece.
        """
        if self.matched is not None:
            return ""
        seen = self._seen + piece
        released = len(self._seen) - self._held
        match = self._first_match(seen + pending)
        if match is not None:
            start, self.matched = match
            end = start + len(self.matched) if self._include else start
            return (seen + pending)[released:end]
        self._held = 0 if self._include else self._possible_start(seen)
        end = len(seen) - self._held
        self._seen = seen[min(end, max(0, len(seen) - self._reach)) :]
        return seen[released:end]

    def flush(self) -> str:
        """What was held back, at the end of a text without a stop."""
        rest = self._seen[len(self._seen) - self._held :] if self.matched is None else ""
        self._held = 0
        return rest

    def _first_match(self, text: str) -> tuple[int, str] | None:
        """Start and stop string of the match that ends first; of several, the one that starts first."""
        found: list[tuple[int, int, str]] = []
        for stop in self._stop:
            start = text.find(stop)
            if start >= 0:
                found.append((start + len(stop), start, stop))
        return min(found)[1:] if found else None

    def _possible_start(self, text: str) -> int:
        """Length of the longest end of the text with which a stop begins."""
        for length in range(min(self._reach, len(text)), 0, -1):
            if text.endswith(tuple(stop[:length] for stop in self._stop)):
                return length
        return 0


def _byte_tails(tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Byte tokens that may follow, if one bad byte spoils its whole run (byte fallback); none for other tokenizers.

    The first, a byte that begins a character, shows what a later token can spoil. The others show what it can still
    repair: any character begun is completed by one to three of them (E0 and F0 want A0, ED and F4 want 80).
    """
    ids = _encode(tokenizer, _RARE)[-4:]
    if len(ids) < 4 or tokenizer.decode([*ids, ids[0]]).startswith(tokenizer.decode(list(ids))):
        return ()
    lead, high, low = ids[0], ids[1], ids[3]
    first = ((high,), (low,))
    return ((lead,), *first, *((*one, low) for one in first), *((*one, low, low) for one in first))


def _shared(texts: Sequence[str]) -> int:
    """Number of characters with which all texts begin."""
    for index, characters in enumerate(zip(*texts, strict=False)):
        if len(set(characters)) > 1:
            return index
    return min(map(len, texts))


def _encode(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """The text's ids; () where the tokenizer knows no such text, as small test tokenizers may say by any error."""
    try:
        return tuple(tokenizer.encode(text, add_special_tokens=False))
    except Exception:
        return ()
