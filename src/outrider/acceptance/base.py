"""What the engine asks of an acceptance rule. A rule sees laws and noise, never logits, models or requests.

A new rule is one file in this folder: a frozen dataclass whose `name` is the file's name and whose fields are its
options. docs/correctness.md proves for each rule what it states in `lossless`.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from outrider.sampling.laws import Laws
from outrider.sampling.noise import Noise
from outrider.types import DraftTree, Outcome


class Rule(Protocol):
    """Turns one row's tree and the target's laws into the kept path and the token that follows it.

    lossless: the text has exactly the target's law. shared_noise: drafters should draw with the target's own noise;
    otherwise they must not. needs_draft_probs: drawn tokens must come with the law they were drawn from.
    visits_path_only: only laws of nodes on the kept path are asked for, so a user's logits processor runs once per
    written token, in text order. chains_only: the rule judges no branches; trees are pruned to a chain before scoring.
    """

    name: ClassVar[str]
    lossless: ClassVar[bool]
    shared_noise: ClassVar[bool]
    needs_draft_probs: ClassVar[bool]
    visits_path_only: ClassVar[bool]
    chains_only: ClassVar[bool] = False

    def __call__(self, tree: DraftTree, laws: Laws, noise: Noise) -> Outcome:
        """The decision for one row. `laws` speaks of this very tree (entry n of what follows node n)."""
        ...


def outcome(tree: DraftTree, path: Sequence[int], next_token: int) -> Outcome:
    """The decision to keep `path` (node ids, root first) and write `next_token` after it."""
    return Outcome(tuple(path), next_token, bonus=not tree.children[path[-1]])
