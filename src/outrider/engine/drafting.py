"""Asks the drafters of a round for trees, keeps their state in step with the rows, and contains their faults."""

import gc
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from outrider.drafters.base import Drafter
from outrider.drafters.fit import chain_of, fit
from outrider.drafters.guide import SOURCE, Guide, guided
from outrider.engine.memory import GivenUp
from outrider.engine.row import Row
from outrider.errors import DrafterError, OptionError, OutriderWarning, did_you_mean
from outrider.policy.base import Policy, Sheds
from outrider.types import Asked, DraftTree, Outcome, Plan, Scored


@dataclass
class Proposals:
    """What the drafters of one round proposed, row by row. errors: of a drafter that failed; it ends its request."""

    trees: list[dict[str, DraftTree]]
    errors: list[DrafterError | None]
    asked: list[Asked]

    def add(
        self, name: str, places: Sequence[int], answers: Sequence[DraftTree | DrafterError], seconds: float
    ) -> None:
        depths = [0]
        for place, answer in zip(places, answers, strict=True):
            if isinstance(answer, DrafterError):
                self.errors[place] = answer
            else:
                self.trees[place][name] = answer
                depths.append(answer.depth)
        self.asked.append(Asked(name, len(places), max(depths), seconds))


class Drafting:
    """The engine's drafters by name. A row's drafter begins when it is first planned and ends with the row."""

    def __init__(self, drafters: Mapping[str, Drafter], vocab_size: int) -> None:
        self.drafters = dict(drafters)
        self._vocab_size = vocab_size

    def check(self, name: str) -> None:
        """OptionError if the engine holds no drafter of that name."""
        if name not in self.drafters:
            raise OptionError(f"this engine has no drafter {name!r}{did_you_mean(name, self.drafters)}")

    def propose(self, rows: Sequence[Row], plans: Sequence[Plan]) -> Proposals:
        """A fitting tree of every drafter that a row's plan asks. Rows with depth 0 get none."""
        made = Proposals([{} for _ in rows], [None for _ in rows], [])
        asks = [{plan.drafter: plan, **{p.drafter: p for p in plan.others}} if plan.max_depth else {} for plan in plans]
        for name in dict.fromkeys(name for ask in asks for name in ask):
            places = [place for place, ask in enumerate(asks) if name in ask]
            start = time.perf_counter()
            trees = self._ask(name, [rows[i] for i in places], [asks[i][name] for i in places])
            made.add(name, places, trees, time.perf_counter() - start)
        return made

    def finish(self, tree: DraftTree, row: Row) -> DraftTree | DrafterError:
        """Cut and extended as the request's grammar wants, and without branches where the rule judges none."""
        guides = [processor for processor in row.params.logits_processors if isinstance(processor, Guide)]
        if guides and len(self.drafters) > 1 and row.params.max_depth != 0:
            try:
                tree = guided(tree, guides, row.tokens, row.view().room)
            except OptionError:
                guides = []  # the grammar has become too complex to follow: the processor will say so
            except Exception as error:
                return _as_drafter_error(SOURCE, error)
        return chain_of(tree) if row.rule.chains_only else tree

    def _ask(self, name: str, rows: list[Row], plans: list[Plan]) -> list[DraftTree | DrafterError]:
        try:
            return list(self._ask_together(name, rows, plans))
        except Exception as error:
            if len(rows) == 1:
                return [_as_drafter_error(name, error)]
            return [self._ask_alone(name, row, plan) for row, plan in zip(rows, plans, strict=True)]

    def _ask_together(self, name: str, rows: list[Row], plans: list[Plan]) -> list[DraftTree]:
        drafter = self.drafters[name]
        for row in rows:
            if name not in row.drafters:
                row.drafters.add(name)
                drafter.begin(row.id, row.tokens[: row.num_prompt])
        contexts = [row.context(plan) for row, plan in zip(rows, plans, strict=True)]
        trees = drafter.propose(contexts)
        if len(trees) != len(contexts):
            raise DrafterError(f"{len(trees)} trees for {len(contexts)} rows")
        fitted = [fit(tree, context, self._vocab_size) for tree, context in zip(trees, contexts, strict=True)]
        return [chain_of(tree) if row.rule.chains_only else tree for tree, row in zip(fitted, rows, strict=True)]

    def _ask_alone(self, name: str, row: Row, plan: Plan) -> DraftTree | DrafterError:
        """After a fault in a batch: this row afresh, so that only the row at fault pays."""
        if error := self._forget(name, row):
            return error
        return self._ask(name, [row], [plan])[0]

    def give_up(self, policy: Policy, rows: Sequence[Row], shortage: str) -> None:
        """Give back the memory of one drafter that holds any: the one that the policy names, else the largest."""
        held = {name: drafter.held_bytes for name, drafter in self.drafters.items() if drafter.held_bytes}
        if not held:
            return
        name = policy.shed(held) if isinstance(policy, Sheds) else max(held, key=held.__getitem__)
        for row in [row for row in rows if name in row.drafters]:
            self._forget(name, row)
        note = f"drafter {name!r} was given up: {shortage}"
        warnings.warn(f"{note}; decoding goes on without it", OutriderWarning, stacklevel=2)
        gone, self.drafters[name] = self.drafters[name], GivenUp(note)
        gone.release()
        del gone
        gc.collect()
        for row in rows:
            row.off_reason = row.off_reason or self.why_not(row.request.drafter)

    def why_not(self, wanted: str | None) -> str | None:
        """Why a request that wants this drafter (None: any) gets no drafts, if what could draft was given up."""
        names = [wanted] if wanted else [name for name in self.drafters if name != "none"]
        gone = [one.why for name in names if isinstance(one := self.drafters[name], GivenUp)]
        return "; ".join(gone) if gone and len(gone) == len(names) else None

    def observe(
        self, row: Row, drafter: str, tree: DraftTree, outcome: Outcome, scored: Scored, nodes: range
    ) -> DrafterError | None:
        """Tell the row's drafters what became of `drafter`'s tree; returns the error of one that raised.

        Confidence is an estimate of the one who made the tree, so the others are not shown it.
        """
        unsigned = tree if tree.confidence is None else replace(tree, confidence=None)
        for name in row.drafters:
            try:
                self.drafters[name].observe(row.id, tree if name == drafter else unsigned, outcome, scored, nodes)
            except Exception as error:
                return _as_drafter_error(name, error)
        return None

    def end(self, row: Row) -> None:
        """The row's drafters forget it: it is over, or what they hold cannot be trusted and they shall begin afresh."""
        for name in [*row.drafters]:
            if error := self._forget(name, row):
                row.tally.warnings.append(str(error))

    def _forget(self, name: str, row: Row) -> DrafterError | None:
        failed: DrafterError | None = None
        try:
            self.drafters[name].end(row.id)
        except Exception as error:
            failed = _as_drafter_error(name, error)
        row.drafters.discard(name)
        return failed


def _as_drafter_error(name: str, error: Exception) -> DrafterError:
    wrapped = DrafterError(f"drafter {name!r} failed: {error or type(error).__name__}")
    wrapped.__cause__ = error
    return wrapped
