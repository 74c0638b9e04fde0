"""Drafts within a grammar: illegal tokens are cut off, forced ones added; the text stays that of plain decoding."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scipy.stats import binomtest

from helpers import World, run, tokens_of
from helpers_drafters import CHARACTERS, DrawnTree, chosen_tree
from helpers_reference import decode
from outrider import Engine, Request, SamplingParams
from outrider.drafters import guide
from outrider.drafters.base import Drafter
from outrider.drafters.guide import Guide, guided
from outrider.errors import OptionError
from outrider.policy.fixed import FixedPolicy
from outrider.testing import FunctionDrafter, FunctionTarget
from outrider.types import DraftTree

WORLD = World(vocab_size=10, seed=41, draft_error=1.0)
END, NUM_PROMPT = 9, 2


class Form:
    """A made-up grammar: at place i one of `slots[i]`, then the end (9). Both a processor and a guide."""

    def __init__(self, *slots: Sequence[int]) -> None:
        self.slots = [tuple(slot) for slot in slots]

    def legal(self, tokens: Sequence[int]) -> tuple[int, ...]:
        written = list(tokens[NUM_PROMPT:])
        for token, slot in zip(written, [*self.slots, (END,)], strict=False):
            if token not in slot:
                return ()
        return (*self.slots, (END,))[len(written)] if len(written) <= len(self.slots) else ()

    def __call__(self, tokens: list[int], logits: torch.Tensor) -> torch.Tensor:
        legal = list(self.legal(tokens))
        assert legal, f"asked about {tokens}, which the grammar forbids"
        return torch.full_like(logits, -torch.inf).index_copy(0, torch.tensor(legal), logits[legal])

    def allows(self, tokens: list[int], token: int) -> bool:
        return token in self.legal(tokens)

    def forced(self, tokens: list[int], limit: int) -> list[int]:
        found: list[int] = []
        while len(found) < limit and len(legal := self.legal([*tokens, *found])) == 1:
            found.append(legal[0])
        return found


ANY = tuple(range(9))
FORM = Form((1,), (2,), (3, 4, 5), (6,), (7,), ANY, (2, 3), (8,))
PROMPT = [3, 1]
assert isinstance(FORM, Guide)


def plain(form: Form = FORM, **options: Any) -> tuple[tuple[int, ...], str]:
    return decode(WORLD.target_logits, PROMPT, (END,), logits_processors=[form], max_new_tokens=20, **options)


def engine(drafter: Drafter | None, **options: Any) -> Engine:
    return Engine(WORLD.target((END,)), drafter, **options)


@pytest.mark.parametrize("name", CHARACTERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", ["identical", "rejection"])
def test_every_drafter_writes_the_plain_text_within_a_grammar(name: str, temperature: float, rule: str) -> None:
    if rule == "rejection" and temperature:
        return  # the law is the same, not the text: see below
    for seed in range(4):
        options = {"temperature": temperature, "seed": seed}
        drafter = CHARACTERS[name](WORLD, (END,))
        found = run(engine(drafter, rule=rule), [PROMPT], logits_processors=[FORM], max_new_tokens=20, **options)
        assert tokens_of(found) == [plain(**options)]


def test_forced_tokens_are_free() -> None:
    """Nothing is drafted, and yet only tokens with a choice cost a pass of their own."""
    nothing = FunctionDrafter(lambda tokens, depth: [])
    stats = run(engine(nothing), [PROMPT], logits_processors=[FORM], max_new_tokens=20)[0].stats
    assert stats.delivered == 9
    assert stats.accepted_by == {"grammar": 6}
    assert stats.rounds == 4
    assert stats.method == "function"


def test_forced_tokens_are_drafted_where_the_policy_does_not_speculate() -> None:
    policy = FixedPolicy("function", 0)
    completion = run(
        engine(FunctionDrafter(chosen_tree(WORLD)), policy=policy),
        [PROMPT],
        logits_processors=[FORM],
        max_new_tokens=20,
    )[0]
    assert completion.stats.accepted_by == {"grammar": 6}
    assert completion.stats.method == "grammar"


@pytest.mark.parametrize("options", [{"max_depth": 0}, {}])
def test_plain_decoding_stays_plain(options: dict[str, int]) -> None:
    drafter = FunctionDrafter(chosen_tree(WORLD)) if options else None
    stats = run(engine(drafter), [PROMPT], logits_processors=[FORM], max_new_tokens=20, **options)[0].stats
    assert (stats.proposed, stats.rounds, stats.method) == (0, 9, "plain")


def test_the_budget_bounds_forced_tokens() -> None:
    for budget in range(1, 9):
        found = run(
            engine(FunctionDrafter(lambda tokens, depth: [])), [PROMPT], logits_processors=[FORM], max_new_tokens=budget
        )
        assert (found[0].token_ids, found[0].finish_reason) == (plain()[0][:budget], "length")


def test_illegal_branches_are_cut_and_forced_ones_grown() -> None:
    tree = DraftTree((1, 1, 5, 2, 3, 8), (-1, 0, 0, 1, 3, 3), None, (1.0, 0.5, 0.4, 0.9, 0.3, 0.2))
    got = guided(tree, [FORM], PROMPT, room=20)
    assert got.tokens == (1, 1, 2, 3, 6, 7)
    assert got.parents == (-1, 0, 1, 2, 3, 4)
    assert got.sources == ("", "", "", "", "grammar", "grammar")
    assert got.confidence is not None
    assert got.confidence[:4] == (1.0, 0.5, 0.9, 0.3)
    assert guided(tree, [FORM], PROMPT, room=4).tokens == (1, 1, 2, 3, 6)
    assert guided(DraftTree.root(1), [FORM], PROMPT, room=0).tokens == (1,)


def test_nothing_is_drafted_past_the_end() -> None:
    whole = [*PROMPT, 1, 2, 3, 6, 7, 0, 2]
    got = guided(DraftTree.chain(2, [8, END, 4, 4]), [FORM], whole, room=9)
    assert got.tokens == (2, 8, END)


def test_drawn_trees_keep_their_laws() -> None:
    """Drawn children stay, legal or not; a forced token goes only where nothing was drawn, and has no law there."""
    laws = torch.full((3, 10), 0.1)
    got = guided(DraftTree((1, 7, 8), (-1, 0, 1), laws), [FORM], PROMPT, room=9)
    assert got.tokens == (1, 7, 8)
    got = guided(DraftTree((1, 1, 2), (-1, 0, 1), laws), [Form((1,), (2,), (3,))], PROMPT, room=9)
    assert got.tokens == (1, 1, 2, 3, END)
    assert got.draft_probs is not None
    assert got.draft_probs.sum(1).tolist() == pytest.approx([1, 1, 0, 0, 0])
    assert laws[2].sum() == pytest.approx(1.0)  # the drafter's own is untouched


class Lopsided:
    """The target hesitates between 0 and 1; the draft says 0, never 1, and often 2, which the grammar forbids."""

    vocab_size = 4

    def target_logits(self, tokens: Sequence[int]) -> torch.Tensor:
        return torch.zeros(4, dtype=torch.float64)

    def draft_logits(self, tokens: Sequence[int]) -> torch.Tensor:
        return torch.tensor([0.6, 0.0, 0.4, 0.0], dtype=torch.float64).log()


def zeros(runs: int) -> int:
    """How many of so many texts begin with 0; half of them should."""
    world: Any = Lopsided()
    target = FunctionTarget(world.target_logits, 4, max_rows=50)
    drafter = DrawnTree(world, width=1, depth=1)
    form = Form((0, 1), (0, 1))
    requests = [
        Request(PROMPT, SamplingParams(temperature=1.0, max_new_tokens=2, seed=seed, logits_processors=(form,)))
        for seed in range(runs)
    ]
    found = run(Engine(target, drafter, rule="rejection", policy=FixedPolicy(drafter.name, 1)), requests)
    assert sum(c.stats.accepted for c in found) > runs / 4
    return sum(c.token_ids[0] == 0 for c in found)


def test_drawn_tokens_stay_so_that_the_law_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the control: were illegal drawn tokens cut off like chosen ones, 0 would come in 70 % of the texts."""
    assert binomtest(zeros(250), 250, 0.5).pvalue > 1e-2

    def cut(tree: DraftTree, guides: Sequence[Guide], history: Sequence[int], room: int) -> DraftTree:
        return guide._without_illegal(tree, guides[0], history)

    monkeypatch.setattr("outrider.engine.drafting.guided", cut)
    assert binomtest(zeros(250), 250, 0.5).pvalue < 1e-4


def test_a_grammar_too_complex_to_follow_guides_nothing() -> None:
    class Lost(Form):
        def allows(self, tokens: list[int], token: int) -> bool:
            raise OptionError("too complex")

    drafter = FunctionDrafter(chosen_tree(WORLD))
    assert tokens_of(run(engine(drafter), [PROMPT], logits_processors=[Lost(*FORM.slots)], max_new_tokens=20)) == [
        plain()
    ]


def test_a_guide_that_breaks_ends_its_own_request_only() -> None:
    class Broken(Form):
        def forced(self, tokens: list[int], limit: int) -> list[int]:
            raise RuntimeError("no idea")

    made = engine(FunctionDrafter(chosen_tree(WORLD)))
    handles = [made.submit(PROMPT, logits_processors=[form], max_new_tokens=20) for form in (Broken(*FORM.slots), FORM)]
    while not all(handle.done for handle in handles):
        made.step()
    assert "no idea" in str(handles[0].completion.error)
    assert tokens_of([handles[1].completion]) == [plain()]
