"""NGR: prompt lookup."""

import pytest

from helpers import World, run, tokens_of
from helpers_reference import decode
from outrider import Engine, SamplingParams
from outrider.drafters.base import DraftContext, TargetView
from outrider.drafters.lookup import LookupDrafter
from outrider.errors import OptionError
from outrider.policy.fixed import FixedPolicy
from outrider.sampling.noise import Noise
from outrider.testing import FunctionDrafter
from outrider.types import DraftTree, Plan

WORLD = World(vocab_size=12, seed=101)


def begun() -> LookupDrafter:
    drafter = LookupDrafter()
    drafter.begin(0, [])
    return drafter


def proposal(drafter: LookupDrafter, tokens: list[int], depth: int = 3, row: int = 0) -> tuple[int, ...]:
    params = SamplingParams().resolve({}, (), 100)
    context = DraftContext(row, tokens, len(tokens), params, Noise(0), "token", Plan("lookup", depth, depth), False)
    return drafter.propose([context])[0].tokens[1:]


def test_ngr_1_a_match_without_any_end_token() -> None:
    assert proposal(begun(), [5, 6, 7, 8, 9, 10, 11, 7, 8]) == (9, 10, 11)


def test_ngr_2_no_match_is_no_proposal() -> None:
    assert proposal(begun(), [1, 2, 3, 4, 5]) == ()
    never = Engine(WORLD.target(), LookupDrafter(min_ngram=3))
    stats = run(never, [[1]], max_new_tokens=3)[0].stats
    assert (stats.proposed, stats.accepted, stats.rounds_without_proposal) == (0, 0, 3)
    for options in ({"max_ngram": 0}, {"min_ngram": 0}, {"max_ngram": 1, "min_ngram": 2}):
        with pytest.raises(OptionError, match="ngram"):
            LookupDrafter(**options)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_ngr_3_ngr_4_a_new_request_knows_nothing_of_the_last(size: int) -> None:
    """A long text, then a short one on the same row: proposals and figures are those of a fresh engine."""
    engine = Engine(WORLD.target(max_rows=1), LookupDrafter())
    run(engine, [[index % 7 for index in range(200)]], max_new_tokens=30)
    short = [3, 4, 5, 3, 4, 11][:size]
    again = run(engine, [short], max_new_tokens=20)[0]
    fresh = run(Engine(WORLD.target(max_rows=1), LookupDrafter()), [short], max_new_tokens=20)[0]
    assert again.token_ids == fresh.token_ids
    assert (again.stats.proposed, again.stats.accepted) == (fresh.stats.proposed, fresh.stats.accepted)


def test_ngr_3_rows_are_reset_in_the_drafter_itself() -> None:
    drafter = LookupDrafter()
    drafter.bind(TargetView(WORLD.target().info))
    drafter.begin(0, [])
    proposal(drafter, [1, 2, 3, 9, 1, 2, 3])
    drafter.end(0)
    for short in ([3], [2, 3], [1, 2, 3]):
        drafter.begin(0, short)
        assert proposal(drafter, short) == ()
        drafter.end(0)


def test_ngr_5_the_best_of_several_guesses_is_kept() -> None:
    """Three guesses under the root; the second is right for four tokens, the first for one only."""

    def propose(tokens: list[int], depth: int) -> DraftTree:
        right = list(decode(WORLD.target_logits, tokens, max_new_tokens=4)[0])
        off = [(token + 1) % 12 for token in right]
        chosen, parents = [tokens[-1], right[0], off[0]], [-1, 0, 0]
        for guess in ([off[1]], [right[1], right[2], right[3]]):
            parent = 1
            for token in guess:
                chosen.append(token)
                parents.append(parent)
                parent = len(chosen) - 1
        return DraftTree(tuple(chosen), tuple(parents))

    drafter = FunctionDrafter(propose)
    found = run(Engine(WORLD.target(), drafter, policy=FixedPolicy("function", 4, 20)), [[2]], max_new_tokens=25)
    assert tokens_of(found) == [decode(WORLD.target_logits, [2], max_new_tokens=25)]
    assert (found[0].stats.rounds, found[0].stats.accepted) == (5, 20)


@pytest.mark.parametrize("matching", [True, False])
def test_ngr_6_a_reference_text_is_looked_up_in_but_not_read(matching: bool) -> None:
    plain = decode(WORLD.target_logits, [2, 7], max_new_tokens=24)[0]
    reference = [2, 7, *plain] if matching else [0] * 30
    target = WORLD.target()
    read: list[int] = []
    logits = target.next_logits
    target.next_logits = lambda tokens: read.append(len(tokens)) or logits(tokens)
    drafter = LookupDrafter(lookup_text=reference)
    found = run(Engine(target, drafter), [[2, 7]], max_new_tokens=24)[0]
    assert found.token_ids == plain
    assert found.prompt_token_ids == (2, 7)
    assert max(read) <= 2 + 24 + 10
    if matching:
        assert found.stats.accepted >= 18
