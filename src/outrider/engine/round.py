"""One round: plan, propose, score, probabilities, accept, commit, observe. It runs in this one direction.

A row whose own drafter, processor, rule or logits fail ends with that error; the others do not notice. Until `commit`
nothing has changed, so an exception of the target, or an interrupt, leaves every row at its last committed token.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from outrider.engine.choosing import Share, chosen_tree, judge, offers
from outrider.engine.drafting import Drafting
from outrider.engine.observe import Observers
from outrider.engine.onlookers import tell, warn_of
from outrider.engine.row import Row
from outrider.engine.trace import RoundTrace, RowTrace, trace_row
from outrider.engine.watch import Stopwatch
from outrider.errors import DrafterError, TargetError
from outrider.policy.base import Choice, Chooser, Policy
from outrider.targets.base import Target
from outrider.types import Asked, DraftTree, Packed, Plan, RoundStats, Scored, pack


class Rounds:
    """Runs rounds over rows whose caches are as invariant I1 wants them."""

    def __init__(
        self,
        target: Target,
        drafting: Drafting,
        policy: Policy,
        observers: Observers,
    ) -> None:
        self._target = target
        self._drafting = drafting
        self._policy = policy
        self._observers = observers
        self._count = 0

    def run(self, rows: Sequence[Row]) -> None:
        try:
            self._run(rows)
        except BaseException:
            for row in rows:
                self._drafting.end(row)  # it may have come amidst a drafter's bookkeeping; they begin afresh
            raise

    def _run(self, rows: Sequence[Row]) -> None:
        watch = Stopwatch()
        plans = self._plan(rows)
        with watch("draft"):
            shares, asked = self._propose(rows, plans)
            self._choose(shares)
            shares = self._finish(shares)
        if not shares:
            return
        packed = self._pack(shares)
        with watch("score"):
            scored = self._score(packed)
        with watch("accept"):
            self._accept(shares, scored)
        traces = self._traces(shares, scored)
        self._target.commit({s.row.cache_row: s.taken.outcome for s in shares if s.taken})
        figures = tuple(s.row.apply(s.taken, s.tree, s.plan) for s in shares if s.taken and not s.row.finish_reason)
        self._observe(shares, scored)
        stats = RoundStats(figures, watch.read(), packed.num_nodes, asked, judge(shares))
        tell("the policy", self._policy.observe, stats)
        for share in shares:
            share.row.tally.seconds += stats.seconds
        if self._observers:
            self._observers.round_done(RoundTrace(self._count, tuple(traces), stats.seconds, packed.num_nodes))
        self._count += 1

    def _plan(self, rows: Sequence[Row]) -> list[Plan]:
        """What the policy plans; plain decoding, with a warning, if it fails: the text does not depend on it."""
        views = [row.view() for row in rows]
        try:
            plans = self._policy.plan(views)
            return [_within(plan, view.room) for plan, view in zip(plans, views, strict=True)]
        except Exception as error:
            warn_of("the policy", error)
            return [Plan(reason="the policy failed") for _ in rows]

    def _propose(self, rows: Sequence[Row], plans: Sequence[Plan]) -> tuple[list[Share], tuple[Asked, ...]]:
        shares: list[Share] = []
        made = self._drafting.propose(rows, plans)
        for row, plan, trees, error in zip(rows, plans, made.trees, made.errors, strict=True):
            if error:
                row.finish("error", error)
            else:
                root = DraftTree.root(row.tokens[-1])
                shares.append(Share(row, plan, trees.get(plan.drafter, root), trees))
        return shares, tuple(made.asked)

    def _choose(self, shares: Sequence[Share]) -> None:
        """Let the policy decide again, now that proposals are there, where its plan said so; none if it fails."""
        policy, revised = self._policy, [share for share in shares if share.plan.revise]
        if not revised or not isinstance(policy, Chooser):
            return
        try:
            choices = policy.choose([share.row.view() for share in revised], [offers(share) for share in revised])
            chosen = [chosen_tree(share, choice) for share, choice in zip(revised, choices, strict=True)]
        except Exception as error:
            warn_of("the policy", error)
            choices = [Choice(reason="the policy failed") for _ in revised]
            chosen = [chosen_tree(share, choice) for share, choice in zip(revised, choices, strict=True)]
        for share, choice, tree in zip(revised, choices, chosen, strict=True):
            share.take_choice(choice, tree)

    def _finish(self, shares: Sequence[Share]) -> list[Share]:
        """A request's grammar, and a rule that judges no branches, have the last word on what is scored."""
        sound: list[Share] = []
        for share in shares:
            tree = self._drafting.finish(share.tree, share.row)
            if isinstance(tree, DrafterError):
                share.row.finish("error", tree)
            else:
                share.tree = tree
                sound.append(share)
        return sound

    def _score(self, packed: Packed) -> Scored:
        """The target's answer. Raises TargetError if it is not one row of logits for every node."""
        scored = self._target.score(packed)
        found, wanted = tuple(scored.logits.shape), (packed.num_nodes, self._target.info.vocab_size)
        if found != wanted:
            raise TargetError(f"{self._target.info.name} answered with logits of shape {found}; expected {wanted}")
        return scored

    def _pack(self, shares: Sequence[Share]) -> Packed:
        trees = [share.tree for share in shares]
        rows = [share.row.cache_row for share in shares]
        packed = pack(trees, rows, [len(share.row.tokens) - 1 for share in shares], self._target.info.device)
        for index, share in enumerate(shares):
            share.nodes = slice(packed.starts[index], packed.starts[index + 1])
        return packed

    def _accept(self, shares: Sequence[Share], scored: Scored) -> None:
        best = _argmax([share.row for share in shares], scored)
        for share in shares:
            row, tree = share.row, share.tree
            try:
                laws = row.laws(scored.logits[share.nodes], tree, _all_sound(best[share.nodes]))
                share.taken = row.take(tree, row.rule(tree, laws, row.noise), laws)
            except Exception as error:
                row.finish("error", error)

    def _traces(self, shares: Sequence[Share], scored: Scored) -> list[RowTrace]:
        """What observers will be told of the rows; nothing is made for nobody."""
        seen = [share for share in shares if share.taken] if self._observers else []
        logits = scored.logits if self._observers.detailed else None
        return [trace_row(s.row, s.plan, s.tree, s.taken, None if logits is None else logits[s.nodes]) for s in seen]

    def _observe(self, shares: Sequence[Share], scored: Scored) -> None:
        for share in shares:
            if share.taken:
                nodes = range(share.nodes.start, share.nodes.stop)
                error = self._drafting.observe(
                    share.row, share.plan.drafter, share.tree, share.taken.outcome, scored, nodes
                )
                if error:
                    share.row.finish("error", error)


def _within(plan: Plan, room: int) -> Plan:
    """The plan cut to what may still be written: a draft beyond it could never be delivered."""
    depth = max(0, min(plan.max_depth, room))
    if depth == 0 or plan.drafter == "none":
        return replace(plan, drafter="none", max_depth=0, max_nodes=0)
    others = tuple(_within(other, room) for other in plan.others)
    return replace(plan, max_depth=depth, max_nodes=max(1, plan.max_nodes), others=others)


def _argmax(rows: Sequence[Row], scored: Scored) -> list[int]:
    """Every node's likeliest raw token, if a row can use it; -1 where the logits are not sound."""
    if not any(row.params.greedy and not row.params.shapes_logits for row in rows):
        return []
    best = scored.logits.max(-1)
    return torch.where(best.values > float("-inf"), best.indices, -1).tolist()


def _all_sound(best: list[int]) -> list[int] | None:
    """The fast path's ids; None sends a row with unsound logits the slow way, which reports them."""
    return best if best and min(best) >= 0 else None
