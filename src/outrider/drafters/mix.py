"""Several drafters at once: their proposals are merged into one tree of the tokens that are likeliest to be kept.

Equal paths become one node. Each drafter's estimates are calibrated by what came true of them in this request
(calibration.py), and the nodes of greatest survival stay. All tokens are chosen, none counts as drawn: which ones stay
depends on the tokens themselves, so the law that a part drew from is not the law of what is proposed. Judged as point
masses they are exact under every rule (docs/correctness.md, "Several drafters"). Where the rule keeps its noise to
itself, parts are therefore asked for their likeliest tokens, which a point mass keeps more often than drawn ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from outrider.drafters.base import DraftContext, Drafter, TargetView
from outrider.drafters.calibration import Calibration
from outrider.drafters.fit import fit
from outrider.drafters.growth import Candidate, grow
from outrider.drafters.registry import make_drafter
from outrider.errors import DrafterError, OptionError
from outrider.types import DraftTree, Outcome, Scored

UNSAID = 0.5  # a proposed token's chance, where its drafter names none
CERTAIN = 0.98  # siblings exclude each other, so their chances add up to no more than this


@dataclass
class MixDrafter(Drafter):
    """drafters: names or specs joined by `+`, such as suffix+recycle+model:qwen-0.5b, options of one separated by `;`
    (from Python also a list of specs or drafter objects). min_survival: a token less likely to be kept is not drafted.
    """

    name: ClassVar[str] = "mix"
    preferred_depth: ClassVar[int] = 12  # with a part that needs passes; without, as deep as its parts

    drafters: str | Sequence[str | Drafter] = "suffix+recycle"
    min_survival: float = 0.005
    _parts: tuple[Drafter, ...] = field(default=(), init=False, repr=False)
    _rows: dict[int, "_RowState"] = field(default_factory=dict[int, "_RowState"], init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.min_survival < 1.0:
            raise OptionError(f"min_survival is {self.min_survival!r}; it must be at least 0 and below 1")
        given = self.drafters.split("+") if isinstance(self.drafters, str) else list(self.drafters)
        self._parts = tuple(_part(one) for one in given)
        if not self._parts:
            raise OptionError("mix needs at least one drafter, such as drafters=suffix+recycle")
        self.labels = _labels(self._parts)
        own = vars(self)  # of the instance, because it depends on the parts
        own["needs_target_cache"] = any(part.needs_target_cache for part in self._parts)
        own["watches_logits"] = any(part.watches_logits for part in self._parts)
        own["preferred_nodes"] = sum(part.preferred_nodes or part.preferred_depth for part in self._parts)
        if all(part.free for part in self._parts):
            own["preferred_depth"] = max(part.preferred_depth for part in self._parts)

    @property
    def parts(self) -> tuple[Drafter, ...]:
        """The drafters that are mixed."""
        return self._parts

    def bind(self, target: TargetView) -> None:
        self._vocab_size = target.info.vocab_size
        for part in self._parts:
            part.bind(target)

    def begin(self, row: int, tokens: Sequence[int]) -> None:
        self._rows[row] = _RowState()
        for part in self._parts:
            part.begin(row, tokens)

    def end(self, row: int) -> None:
        self._rows.pop(row, None)
        _all(self._parts, lambda part: part.end(row))

    @property
    def held_bytes(self) -> int:
        return sum(part.held_bytes for part in self._parts)

    def release(self) -> None:
        _all(self._parts, lambda part: part.release())

    def propose(self, contexts: Sequence[DraftContext]) -> list[DraftTree]:
        answers = [self._ask(part, contexts) for part in self._parts]
        return [self._merge(context, trees) for context, *trees in zip(contexts, *answers, strict=True)]

    def observe(self, row: int, tree: DraftTree, outcome: Outcome, scored: Scored, nodes: range) -> None:
        """Learn whose tokens came true, and tell every part, which sees its own estimates (0: it proposed nothing)."""
        state = self._rows.get(row)
        if state is None:
            return
        proposed, state.proposed = state.proposed, None
        if proposed is None:  # another drafter's tree
            _all(self._parts, lambda part: part.observe(row, tree, outcome, scored, nodes))
            return
        _learn(state.calibration, proposed, [*(tree.tokens[n] for n in outcome.path[1:]), outcome.next_token])
        branches = list(_branches(tree, proposed))
        for number, part in enumerate(self._parts):
            said = tuple(branch.said.get(number, 0.0) if branch else 0.0 for branch in branches[1:])
            own = DraftTree(tree.tokens, tree.parents, confidence=(1.0, *said))
            part.observe(row, own, outcome, scored, nodes)

    def _ask(self, part: Drafter, contexts: Sequence[DraftContext]) -> list[DraftTree]:
        asked = [_for_part(context, part) for context in contexts]
        trees = part.propose(asked)
        if len(trees) != len(asked):
            raise DrafterError(f"{part.name}: {len(trees)} trees for {len(asked)} rows")
        return [fit(tree, context, self._vocab_size) for tree, context in zip(trees, asked, strict=True)]

    def _merge(self, context: DraftContext, trees: Sequence[DraftTree]) -> DraftTree:
        state = self._rows[context.row]
        state.proposed = merged = _Branch()
        for number, tree in enumerate(trees):
            merged.add(number, tree)

        def candidates(branch: _Branch, depth: int) -> Iterable[Candidate[_Branch]]:
            chances = {t: state.calibration.chance(after.said, depth + 1) for t, after in branch.children.items()}
            scale = min(1.0, CERTAIN / max(sum(chances.values()), 1e-9))
            return [Candidate(token, scale * chance, branch.children[token]) for token, chance in chances.items()]

        tree = grow(
            context.root,
            merged,
            candidates,
            max_nodes=context.plan.max_nodes,
            max_depth=context.plan.max_depth,
            min_survival=self.min_survival,
        )
        note = "" if tree.num_drafted else "; ".join(filter(None, (one.note for one in trees)))
        return replace(tree, sources=self._sources(tree, merged, state.calibration), note=note)

    def _sources(self, tree: DraftTree, merged: "_Branch", calibration: Calibration) -> tuple[str, ...]:
        """Whose token each node is: of several who proposed it, the one whose word counts most."""

        def best(branch: _Branch, depth: int) -> str:
            return self.labels[max(branch.said, key=lambda part: calibration.alone(part, branch.said[part], depth))]

        pairs = zip(_branches(tree, merged), tree.depths, strict=True)
        return tuple(best(branch, depth) if branch and branch.said else "" for branch, depth in pairs)


@dataclass(eq=False)
class _Branch:
    """A place in the merged proposals. said: the estimate of every part that proposed to come here."""

    children: dict[int, "_Branch"] = field(default_factory=dict[int, "_Branch"])
    said: dict[int, float] = field(default_factory=dict[int, float])

    def add(self, part: int, tree: DraftTree) -> None:
        """One part's proposal, below here."""
        places: list[_Branch] = [self]
        for node in range(1, len(tree.tokens)):
            place = places[tree.parents[node]].children.setdefault(tree.tokens[node], _Branch())
            place.said[part] = UNSAID if tree.confidence is None else min(1.0, max(0.0, tree.confidence[node]))
            places.append(place)


@dataclass(eq=False)
class _RowState:
    """One request: how far each part can be trusted, and what was proposed in the round that is under way."""

    calibration: Calibration = field(default_factory=Calibration)
    proposed: _Branch | None = None


def _learn(calibration: Calibration, place: _Branch, written: Sequence[int]) -> None:
    """Every proposal next to a written token was judged by it, whether or not it stayed in the tree."""
    for depth, token in enumerate(written, start=1):
        for other, branch in place.children.items():
            calibration.learn(branch.said, depth, other == token)
        if token not in place.children:
            return
        place = place.children[token]


def _branches(tree: DraftTree, merged: _Branch) -> Iterator[_Branch | None]:
    """Where each node of the tree lies in the merged proposals; None for nodes that none of the parts proposed."""
    places: list[_Branch | None] = [merged]
    for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
        above = places[parent]
        places.append(above.children.get(token) if above else None)
    yield from places


def _for_part(context: DraftContext, part: Drafter) -> DraftContext:
    """What a part is asked: chosen tokens, unless the noise is the target's own and makes draws agree with it."""
    params = context.params if context.stream == "token" else replace(context.params, temperature=0.0)
    plan = replace(context.plan, drafter=part.name)
    return replace(context, tokens=list(context.tokens), params=params, plan=plan, want_probs=False)


def _part(given: str | Drafter) -> Drafter:
    if isinstance(given, Drafter):
        return given
    spec = given.strip()
    if not spec:
        raise OptionError("mix has an empty name among its drafters; write drafters=suffix+recycle")
    if spec.partition(":")[0] == MixDrafter.name:
        raise OptionError("mix cannot be a part of mix; list its parts in one mix")
    return make_drafter(spec.replace(";", ","))


def _labels(parts: Sequence[Drafter]) -> tuple[str, ...]:
    """Names that tell the parts apart: a second `lookup` is called lookup-2."""
    names = [part.name for part in parts]
    counts = [names[: i + 1].count(name) for i, name in enumerate(names)]
    return tuple(name if count == 1 else f"{name}-{count}" for name, count in zip(names, counts, strict=True))


def _all(parts: Iterable[Drafter], act: Callable[[Drafter], None]) -> None:
    """Do it for every part, also when one of them raises; the first error is raised at the end."""
    errors: list[Exception] = []
    for part in parts:
        try:
            act(part)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
