"""Draft models that propose a part of their vocabulary, or whose vocabulary is another: spelling, maps, bridges."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import PieceTokenizer, World, run, tokens_of, with_text
from helpers_models import VOCAB, llama, near_copy, target
from helpers_reference import decode
from helpers_speed import quick
from outrider import Engine
from outrider.drafters.base import TargetView
from outrider.drafters.model import ModelDrafter
from outrider.drafters.pairing import coverage, pair
from outrider.drafters.retelling import Retelling, told_back
from outrider.drafters.spelling import spell
from outrider.drafters.vocabulary import Vocabulary, sample_text, shared_tokens, shortlist
from outrider.errors import OptionError, PairingError
from outrider.kernels import available
from outrider.targets.base import Target
from outrider.targets.hf.int8 import quantize_model
from outrider.testing import FunctionTarget
from outrider.types import DraftTree, pack

WORLD = World(seed=31)
RULES = ("identical", "rejection", "block")


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with quick():
        yield


class Words:
    """A vocabulary to look at; nothing is encoded."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.name = "words"

    def vocabulary(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self.texts)}


# ---- spelling


def test_byte_level_tokens_are_read_as_bytes() -> None:
    spelled = spell(Words("Ġthe", "Ċ", "Ã©", "<|end|>", "x"))  # type: ignore[arg-type]
    assert spelled == {b" the": 0, b"\n": 1, "é".encode(): 2, b"<|end|>": 3, b"x": 4}


def test_sentence_piece_tokens_are_read_as_bytes() -> None:
    spelled = spell(Words("<0x41>", "▁the", "A", "<0x0A>", "é", "<end>", "Ġ", "▁a"))  # type: ignore[arg-type]
    assert spelled == {b" the": 1, b"A": 2, b"\n": 3, "é".encode(): 4, b"<end>": 5, "Ġ".encode(): 6, b" a": 7}


def test_all_bytes_have_one_character_each() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    letters = sorted(ByteLevel.alphabet())
    assert sorted(spell(Words("Ġ", *letters))) == sorted(bytes([byte]) for byte in range(256))  # type: ignore[arg-type]


def test_shared_tokens_are_those_of_the_same_bytes() -> None:
    draft, goal = Words("Ġthe", "x", "Ċ", "only-here"), Words("x", "▁the", "other", "<0x0A>", "\n")
    infos = FunctionTarget(lambda tokens: [0.0] * 4, 4).info, FunctionTarget(lambda tokens: [0.0] * 5, 5).info
    assert shared_tokens(draft, infos[0], goal, infos[1]) == {0: 1, 1: 0, 2: 4}  # type: ignore[arg-type]


# ---- a part of the vocabulary


def test_spread_puts_columns_where_the_target_has_them() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    inf = float("inf")
    assert Vocabulary(6).spread(logits).tolist() == [[0.0, 1.0, 2.0, 3.0, -inf, -inf]]
    assert Vocabulary(3).spread(logits).tolist() == [[0.0, 1.0, 2.0]]
    assert Vocabulary(5, [3, 1], [0, 4]).spread(logits).tolist() == [[3.0, -inf, -inf, -inf, 1.0]]
    short = Vocabulary(5, [3, 1], [0, 4], head_only=True)
    assert short.spread(logits[:, :2]).tolist() == [[0.0, -inf, -inf, -inf, 1.0]]
    assert (short.to_draft(0), short.to_draft(4), Vocabulary(5).to_draft(4)) == (3, 1, 4)


def test_shortlists_hold_what_is_frequent_then_what_is_low() -> None:
    tokenizer = PieceTokenizer([bytes([97 + index]) for index in range(20)])
    info = FunctionTarget(lambda tokens: [0.0] * 20, 20, eos_token_ids=[19]).info
    assert shortlist(4, info, tokenizer, "jjjjmmmk") == [9, 10, 12, 19]
    assert shortlist(6, info, tokenizer, "jjjjmmmk") == [0, 1, 9, 10, 12, 19]
    assert shortlist(3, info, None, "jjj") == [0, 1, 19]
    assert shortlist(99, info, tokenizer, "") == list(range(20))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_trimmed_head_gives_the_same_columns_and_spares_the_others(dtype: torch.dtype) -> None:
    whole = target(llama(dtype=dtype))
    ids = [1, 4, 5, 11, 20]
    part = whole.trimmed(ids)
    assert part.info.vocab_size == 5
    assert part._model.get_output_embeddings().weight.shape[0] == 5
    packed = pack([DraftTree((3, 7, 9, 22), (-1, 0, 0, 1))], [0], [0])
    expected = whole.score(packed).logits
    found = part.score(packed).logits
    if dtype == torch.float64:  # torch's product, which may sum in another order where there are fewer columns
        assert torch.allclose(found, expected[:, ids], atol=1e-12, rtol=0)
    else:
        assert torch.equal(found, expected[:, ids])
    assert torch.equal(whole.score(packed).logits, expected)
    part.prefill([0], [[1, 2]])
    assert (part.length(0), whole.length(0)) == (2, 0)


@pytest.mark.skipif(not available()[0], reason=available()[1])
def test_a_head_of_int8_weights_can_be_trimmed() -> None:
    model = near_copy(llama(dtype=torch.bfloat16), noise=0.0)
    quantize_model(model)
    whole = target(model, quantize="int8")
    packed = pack([DraftTree((3, 7, 9, 22), (-1, 0, 0, 1))], [0], [0])
    expected = whole.score(packed).logits
    assert torch.equal(whole.trimmed([2, 0, 19]).score(packed).logits, expected[:, [2, 0, 19]])


@pytest.mark.parametrize("ids", [[], [VOCAB], [-1]])
def test_heads_have_no_other_rows(ids: list[int]) -> None:
    with pytest.raises(OptionError, match="rows 0 to 22"):
        target(llama()).trimmed(ids)


@pytest.mark.parametrize("rule", RULES)
def test_a_trimmed_draft_proposes_its_shortlist_alone(rule: str) -> None:
    engine = Engine(target(llama()), ModelDrafter(target(near_copy(llama())), branches=2, draft_vocab=9), rule=rule)
    drafted = set[int]()
    engine._drafting.drafters["model"].observe = lambda row, tree, *rest: drafted.update(tree.tokens[1:])  # type: ignore
    found = run(engine, [[1], [2, 3]], max_new_tokens=25)
    assert tokens_of(found) == tokens_of(run(Engine(target(llama())), [[1], [2, 3]], max_new_tokens=25))
    run(engine, [[1], [2, 3]], max_new_tokens=25, temperature=1.0, seed=1, min_new_tokens=3)
    assert drafted == set(range(9)) & drafted
    assert len(drafted) > 3


def test_settings_that_leave_the_shortlist_nothing_leave_the_text_alone() -> None:
    """Every token that could be proposed is banned: no draft, no error."""
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft(), draft_vocab=3))
    options = {"max_new_tokens": 10, "banned_token_ids": [0, 1, 2], "temperature": 1.0, "seed": 1}
    found = run(engine, [[1]], **options)
    assert tokens_of(found) == [decode(WORLD.target_logits, [1], **options)]
    assert found[0].stats.proposed == 0


def test_the_text_that_counts_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("hhhhh")
    pieces = [bytes([97 + index]) for index in range(8)]
    engine = Engine(
        with_text(WORLD.target(), pieces),
        ModelDrafter(with_text(WORLD.draft(), pieces), draft_vocab=1, draft_vocab_text=str(file)),
    )
    drafted = set[int]()
    engine._drafting.drafters["model"].observe = lambda row, tree, *rest: drafted.update(tree.tokens[1:])  # type: ignore
    run(engine, [[1]], max_new_tokens=30)
    assert drafted == {7}
    with pytest.raises(OptionError, match=r"draft_vocab_text .*none\.txt"):
        sample_text(str(tmp_path / "none.txt"))
    assert len(sample_text()) > 5000


# ---- a text in two vocabularies


def text_law(text: str) -> list[float]:
    """Logits of the next of 3 letters: one follows from the last two, the others are possible."""
    last = [ord(letter) - 97 for letter in text[-2:]] or [0]
    likely = (3 * last[0] + last[-1] + len(last)) % 3
    return [3.0 if letter == likely else 0.0 for letter in range(3)]


def writer(pieces: Sequence[bytes], unusual: float = 1.0, **options: Any) -> FunctionTarget:
    """A model over these pieces of the letters a, b, c: each as likely as its letters are; longer ones more by 0.5."""
    tokenizer = PieceTokenizer(pieces)

    @cache
    def law(text: str) -> torch.Tensor:
        return torch.tensor([score(text, piece.decode()) for piece in pieces], dtype=torch.float64)

    def score(text: str, piece: str) -> float:
        return 0.5 * len(piece) + sum(
            text_law(text + piece[:place])[ord(letter) - 97] - 3.2 for place, letter in enumerate(piece)
        )

    return with_text(
        FunctionTarget(lambda tokens: law(tokenizer.decode(tokens)[-2:]) * unusual, len(pieces), **options), pieces
    )


LETTERS = [b"a", b"b", b"c"]
MIXED = [b"ab", b"a", b"ca", b"c", b"bb", b"b", b"abc", b"cab"]
SHARED = [b"c", b"ab", b"bca", b"b", b"cab", b"a", b"bb"]


@pytest.mark.parametrize("bridge", ["intersection", "text", "auto"])
@pytest.mark.parametrize("pieces", [LETTERS, SHARED], ids=["letters", "shared"])
@pytest.mark.parametrize("rule", RULES)
def test_another_vocabulary_writes_the_plain_text(bridge: Any, pieces: list[bytes], rule: str) -> None:
    plain = Engine(writer(MIXED))
    drafter = ModelDrafter(writer(pieces, 0.8), bridge=bridge, branches=2)
    engine = Engine(writer(MIXED), drafter, rule=rule)
    prompts = [[1], [0, 3, 5], [6, 7, 2, 2, 1]]
    settings = [{}, {"frequency_penalty": 0.2}] + ([{"temperature": 1.0, "seed": 4}] if rule == "identical" else [])
    for options in settings:
        found = run(engine, prompts, max_new_tokens=20, **options)
        assert tokens_of(found) == tokens_of(run(plain, prompts, max_new_tokens=20, **options))
        assert all(completion.stats.accepted > 0 for completion in found)


def test_the_draft_reads_on_where_it_left_off() -> None:
    """Over a long text the draft model is fed a few tokens a round, not the text."""
    draft = writer(SHARED)
    engine = Engine(writer(MIXED), ModelDrafter(draft, bridge="intersection"))
    completion = run(engine, [[1]], max_new_tokens=300)[0]
    assert completion.stats.accepted > 100
    assert draft.num_scored < 14 * completion.stats.rounds


def test_a_text_that_ends_within_a_character_is_not_drafted_for() -> None:
    euro = "€".encode()
    pieces = [b"a", euro[:1], euro[1:2], euro[2:], b"b"]
    line = [1, 2, 3, 0, 1, 2, 3, 4, 0]

    def logits(tokens: Sequence[int]) -> list[float]:
        return [9.0 if token == line[(len(tokens) - 1) % len(line)] else 0.0 for token in range(5)]

    def guess(tokens: Sequence[int]) -> list[float]:
        return [1.0, 2.0, 0.0]

    one = with_text(FunctionTarget(logits, 5), pieces)
    other = with_text(FunctionTarget(guess, 3), [b"b", b"a", euro])
    for bridge in ("intersection", "text"):
        found = run(Engine(one, ModelDrafter(other, bridge=bridge)), [[0]], max_new_tokens=18)  # type: ignore
        assert found[0].token_ids == (*line, *line)
        assert found[0].stats.rounds_without_proposal > 0 < found[0].stats.accepted


@pytest.mark.parametrize("size", [1, 50, 400])
def test_texts_told_piece_by_piece_are_told_whole(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    tokens = torch.randint(len(MIXED), (size,), generator=generator).tolist()
    source, goal = PieceTokenizer(MIXED), PieceTokenizer(SHARED)
    teller = Retelling(source, goal)
    for end in range(1, size + 1, 3):
        assert teller.tell(tokens[:end]) == goal.encode(source.decode(tokens[:end]))
    assert teller._num_settled > size - 120 or size < 97


def test_specials_that_the_draft_does_not_know_are_left_out() -> None:
    class Special(PieceTokenizer):
        def vocabulary(self) -> dict[str, int]:
            return {piece.decode(): index for index, piece in enumerate(self.pieces)}

        def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
            return super().decode([i for i in token_ids if not (skip_special_tokens and self.pieces[i][:1] == b"<")])

    source = Special([b"a", b"<start>", b"<end>", b"b"])
    goal = Special([b"b", b"<end>", b"a"])
    assert Retelling(source, goal).tell([1, 0, 3, 2, 0]) == [2, 0, 1, 2]


def test_a_proposal_is_cut_in_its_context_or_dropped() -> None:
    tokenizer = PieceTokenizer([b"a", b"b", b"ab", b"abc", b"c"])
    assert told_back(tokenizer, [1, 1], "ab") == [2]
    assert told_back(tokenizer, [1, 0], "bc") == [1, 4]  # "abc" would be one token; after "a" alone it is not
    assert told_back(tokenizer, [1], "xb") == []  # x has no token: the text would change
    assert told_back(tokenizer, [1], "") == []


# ---- which bridge


def toys(draft: Sequence[bytes], goal: Sequence[bytes]) -> tuple[TargetView, Target]:
    one = with_text(FunctionTarget(lambda tokens: [0.0] * len(goal), len(goal)), goal)
    other = with_text(FunctionTarget(lambda tokens: [0.0] * len(draft), len(draft)), draft)
    return TargetView(one.info, one.tokenizer), other


def test_auto_takes_the_intersection_where_it_covers_most_of_a_text() -> None:
    view, draft = toys([b"b", b"a", b"ca"], [b"a", b"b", b"c"])
    assert pair("auto", view, draft, lambda: "abababab").kind == "intersection"
    assert pair("auto", view, draft, lambda: "acacacac").kind == "text"
    assert pair("auto", view, draft, lambda: "").kind == "text"
    assert pair("intersection", view, draft, lambda: "ac").shared == {0: 1, 1: 0}
    assert pair("text", view, draft, lambda: "ab").kind == "text"
    assert coverage({0: 1, 1: 0}, draft.tokenizer, "abca") == pytest.approx(2 / 3)  # type: ignore[arg-type]


def test_the_same_vocabulary_needs_no_bridge() -> None:
    view, draft = toys([b"a", b"b"], [b"a", b"b"])
    assert pair("auto", view, draft, lambda: "").kind == "direct"
    assert pair("none", view, draft, lambda: "").kind == "direct"
    assert pair("text", view, draft, lambda: "").kind == "text"


def test_pairs_that_cannot_meet_are_refused() -> None:
    view, draft = toys([b"x", b"y"], [b"a", b"b", b"c"])
    with pytest.raises(PairingError, match="share no token; use bridge=text"):
        pair("intersection", view, draft, lambda: "")
    with pytest.raises(PairingError, match=r"id 0: .*'x'.*'a'.*bridge=auto"):
        pair("none", view, draft, lambda: "")
    with pytest.raises(PairingError, match="no tokenizers to compare"):
        pair("auto", TargetView(WORLD.target().info), draft, lambda: "")
    with pytest.raises(PairingError, match="needs two tokenizers"):
        pair("text", TargetView(WORLD.target().info), WORLD.draft(), lambda: "")
    drafter = ModelDrafter(with_text(FunctionTarget(lambda tokens: [0.0] * 3, 3), [b"e", b"t", b"a"]), draft_vocab=2)
    with pytest.raises(PairingError, match="draft_vocab=2"):
        Engine(with_text(FunctionTarget(lambda tokens: [0.0] * 2, 2), [b"a", b"b"]), _with(drafter, "intersection"))


def _with(drafter: ModelDrafter, bridge: Any) -> ModelDrafter:
    drafter.bridge = bridge
    return drafter


# ---- numbers of another kind


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("of_target", "of_draft"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16), (torch.float64, torch.float32)],
    ids=str,
)
def test_a_draft_of_another_dtype(rule: str, of_target: torch.dtype, of_draft: torch.dtype) -> None:
    one, other = target(llama(dtype=of_target)), target(near_copy(llama(dtype=of_draft)))
    engine = Engine(one, ModelDrafter(other, branches=2), rule=rule)
    plain = Engine(target(llama(dtype=of_target)))
    for options in ({}, {"temperature": 1.0, "seed": 2}):
        found = run(engine, [[1], [2, 3]], max_new_tokens=16, **options)
        if not options or rule == "identical":
            assert tokens_of(found) == tokens_of(run(plain, [[1], [2, 3]], max_new_tokens=16, **options))
        assert sum(completion.stats.accepted for completion in found) > 0


def test_a_text_with_ids_beyond_the_draft_models_is_written_without_it() -> None:
    """The everyday case: a target with added tokens that its draft model lacks."""

    def draft_logits(tokens: Sequence[int]) -> list[float]:
        return [[0.0, 9.0, 1.0], [1.0, 0.0, 9.0], [9.0, 0.0, 1.0]][tokens[-1]]  # as an embedding: no row beyond

    def goal_logits(tokens: Sequence[int]) -> list[float]:
        return [*draft_logits([tokens[-1] % 3]), 10.0 if len(tokens) == 12 else 0.0]

    goal = with_text(FunctionTarget(goal_logits, 4), [b"a", b"b", b"c", b"<new>"])
    draft = with_text(FunctionTarget(draft_logits, 3), [b"a", b"b", b"c"])
    plain = Engine(goal).generate([0, 1], max_new_tokens=20)
    found = Engine(goal, ModelDrafter(draft), policy="fixed").generate([0, 1], max_new_tokens=20)
    assert found.token_ids == plain.token_ids
    assert 3 in plain.token_ids
    assert 0 < found.stats.accepted < 12
    late = Engine(goal, ModelDrafter(draft), policy="fixed").generate([3, 1], max_new_tokens=5)
    assert "token 3, unknown to the draft model" in (late.stats.off_reason or "")
