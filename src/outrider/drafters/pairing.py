"""Whether a draft model's tokens mean the same as the target's, and by which bridge they meet where they do not."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from outrider.drafters.base import TargetView
from outrider.drafters.vocabulary import shared_tokens
from outrider.errors import PairingError
from outrider.targets.base import Target, TargetInfo, Tokenizer

Bridge = Literal["auto", "none", "intersection", "text"]
BRIDGES: tuple[str, ...] = get_args(Bridge)
WAY_OUT = (
    "choose a draft model of the target's family, or let bridge=auto translate, "
    "or choose drafter 'lookup', which needs no model"
)
ENOUGH = 0.7  # of a sample's tokens must be shared for the intersection to be the better bridge


class Pairing(NamedTuple):
    """How the two vocabularies meet. shared: {draft id: target id}, of an intersection only."""

    kind: Literal["direct", "intersection", "text"]
    shared: dict[int, int] | None = None


def pair(asked: str, target: TargetView, draft: Target, sample: Callable[[], str]) -> Pairing:
    """The pairing that `asked` (a `Bridge`) leads to; sample: a text that tells how often tokens occur.

    "auto" is direct where the vocabularies are the same. Raises PairingError where nothing fits.
    """
    if draft.info is target.info:
        raise PairingError(
            f"{draft.info.name} cannot draft for itself as one and the same object, for both would write into its "
            "cache; load it a second time"
        )
    misfit = difference(target, draft.info, draft.tokenizer)
    if asked in ("auto", "none") and not misfit:
        return Pairing("direct")
    if asked == "none" or target.tokenizer is None or draft.tokenizer is None:
        raise PairingError(misfit or f"bridge={asked} needs two tokenizers, and not both models have one")
    if asked == "text":
        return Pairing("text")
    shared = shared_tokens(draft.tokenizer, draft.info, target.tokenizer, target.info)
    if asked == "auto" and coverage(shared, draft.tokenizer, sample()) < ENOUGH:
        return Pairing("text")
    if not shared:
        raise PairingError(
            f"the draft model {draft.info.name} and the target {target.info.name} share no token; use bridge=text"
        )
    return Pairing("intersection", shared)


def coverage(shared: dict[int, int], draft: Tokenizer, sample: str) -> float:
    """Share of the sample's tokens, as the draft model cuts it, that the target knows too."""
    ids = draft.encode(sample, add_special_tokens=False)
    return sum(token in shared for token in ids) / max(1, len(ids))


def difference(target: TargetView, info: TargetInfo, tokenizer: Tokenizer | None) -> str:
    """Empty if every id that both models know is the same token (padding and extra ids do not matter), else why not."""
    if target.tokenizer is None or tokenizer is None:
        if target.info.vocab_size == info.vocab_size:
            return ""
        return (
            f"the draft model {info.name} has {info.vocab_size} tokens and the target {target.info.name} "
            f"{target.info.vocab_size}, and no tokenizers to compare; {WAY_OUT}"
        )
    wanted = {token_id: text for text, token_id in target.tokenizer.vocabulary().items()}
    given = {token_id: text for text, token_id in tokenizer.vocabulary().items()}
    for token_id in sorted(wanted.keys() & given.keys()):
        if wanted[token_id] != given[token_id]:
            return (
                f"the draft model {info.name} uses tokenizer {tokenizer.name} with {info.vocab_size} tokens, the "
                f"target {target.info.name} uses {target.tokenizer.name} with {target.info.vocab_size}; the first "
                f"difference is id {token_id}: {given[token_id]!r} against {wanted[token_id]!r}; {WAY_OUT}"
            )
    return ""
