"""Makes a proposal fit its plan and the vocabulary, so that no drafter can harm a round.

Cut off are: nodes deeper than the plan, nodes beyond max_nodes, siblings that repeat a token, and ids that the target
does not know, each with all that follows it. Nothing else is changed. Cutting by depth or by number depends only on
what was drawn before, so drawn trees keep their law; a drawn tree with a repeated or unknown id broke its contract.
"""

from outrider.drafters.base import DraftContext
from outrider.errors import DrafterError
from outrider.types import DraftTree


def fit(tree: object, context: DraftContext, vocab_size: int) -> DraftTree:
    """The largest part of `tree` that is allowed. Raises DrafterError where the tree is malformed."""
    if not isinstance(tree, DraftTree):
        raise DrafterError(f"a drafter returned {type(tree).__name__}; expected a DraftTree")
    _check(tree, context, vocab_size)
    kept = _allowed(tree, context, vocab_size)
    return tree.keep(kept)


def chain_of(tree: DraftTree) -> DraftTree:
    """The tree without its branches: drawn children keep the first that was drawn, chosen ones the likeliest.

    The first draw alone has the law draft_probs, whatever its younger siblings were.
    """
    chances = tree.confidence if tree.draft_probs is None else None
    kept = [0]
    while children := tree.children[kept[-1]]:
        kept.append(max(children, key=chances.__getitem__) if chances else children[0])
    return tree.keep(kept)


def _check(tree: DraftTree, context: DraftContext, vocab_size: int) -> None:
    num_nodes = len(tree.tokens)
    for token in tree.tokens:
        if type(token) is not int:
            raise DrafterError(f"draft tokens must be of type int, not {type(token).__name__}: {token!r}")
    if not num_nodes or tree.tokens[0] != context.root or tree.parents[0] != -1:
        raise DrafterError(f"a draft tree must begin with the root token {context.root} and parent -1")
    if len(tree.parents) != num_nodes or any(not 0 <= p < i for i, p in enumerate(tree.parents) if i):
        raise DrafterError(f"a draft tree needs 0 <= parents[i] < i for each node but the root; got {tree.parents}")
    if tree.sources and len(tree.sources) != num_nodes:
        raise DrafterError(f"a draft tree of {num_nodes} nodes names {len(tree.sources)} sources")
    if tree.draft_probs is not None:
        rows, columns = tree.draft_probs.shape
        if rows < num_nodes or columns != vocab_size:
            raise DrafterError(f"draft_probs is {rows} x {columns} for {num_nodes} nodes and {vocab_size} tokens")


def _allowed(tree: DraftTree, context: DraftContext, vocab_size: int) -> list[int]:
    kept, alive, seen = [0], {0}, set[tuple[int, int]]()
    for node in range(1, len(tree.tokens)):
        parent, token = tree.parents[node], tree.tokens[node]
        if parent not in alive or tree.depths[node] > context.plan.max_depth or len(kept) > context.plan.max_nodes:
            continue
        if not 0 <= token < vocab_size or (parent, token) in seen:
            if tree.draft_probs is not None:
                raise DrafterError(f"a drawn sibling repeats or is no token: {token} (vocabulary {vocab_size})")
            continue
        seen.add((parent, token))
        alive.add(node)
        kept.append(node)
    return kept


def subtree(tree: DraftTree, kept: list[int]) -> DraftTree:
    """The nodes `kept` (increasing, the root first, each with its parent) as a tree of their own."""
    return tree.keep(kept)
