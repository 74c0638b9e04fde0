"""Whether a draft model's tokens mean the same as the target's."""

from outrider.drafters.base import TargetView
from outrider.errors import PairingError
from outrider.targets.base import TargetInfo, Tokenizer

WAY_OUT = "choose a draft model of the target's family, or drafter 'lookup', which needs no model"


def check_same_vocabulary(target: TargetView, info: TargetInfo, tokenizer: Tokenizer | None) -> None:
    """PairingError unless every id that both models know is the same token; padding and extra ids do not matter."""
    if info is target.info:
        raise PairingError(
            f"{info.name} cannot draft for itself as one and the same object, for both would write into its cache; "
            "load it a second time"
        )
    if target.tokenizer is None or tokenizer is None:
        if target.info.vocab_size != info.vocab_size:
            raise PairingError(
                f"the draft model {info.name} has {info.vocab_size} tokens and the target {target.info.name} "
                f"{target.info.vocab_size}, and no tokenizers to compare; {WAY_OUT}"
            )
        return
    wanted = {token_id: text for text, token_id in target.tokenizer.vocabulary().items()}
    given = {token_id: text for text, token_id in tokenizer.vocabulary().items()}
    for token_id in sorted(wanted.keys() & given.keys()):
        if wanted[token_id] != given[token_id]:
            raise PairingError(
                f"the draft model {info.name} uses tokenizer {tokenizer.name} with {info.vocab_size} tokens, the "
                f"target {target.info.name} uses {target.tokenizer.name} with {target.info.vocab_size}; the first "
                f"difference is id {token_id}: {given[token_id]!r} against {wanted[token_id]!r}; {WAY_OUT}"
            )
