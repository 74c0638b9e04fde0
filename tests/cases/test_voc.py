"""VOC: pairs of vocabularies and tokenizers."""

from typing import Any

import pytest
import torch

import outrider
from helpers import PieceTokenizer, World, run, tokens_of
from helpers_reference import decode
from outrider import Engine
from outrider.drafters.model import ModelDrafter
from outrider.errors import PairingError
from outrider.testing import FunctionTarget

REAL = 30
WORLD = World(vocab_size=40, seed=91)
PIECES = [f"<{index}>".encode() for index in range(40)]


def padded(rows: int, boosted: int, visible: int, error: float) -> FunctionTarget:
    """Logits over `rows` ids of which those from REAL on mean nothing; one of them scores highest of all."""

    def logits(tokens: Any) -> torch.Tensor:
        row = (WORLD.draft_logits(tokens) if error else WORLD.target_logits(tokens))[:rows].clone()
        row[boosted] = 50.0
        return row[:visible]

    target = FunctionTarget(logits, visible)
    target.tokenizer = PieceTokenizer(PIECES[:REAL])  # pyright: ignore[reportAttributeAccessIssue]
    return target


@pytest.mark.parametrize(("draft_rows", "target_rows"), [(34, 38), (38, 34)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_voc_1_padding_rows_mean_nothing(draft_rows: int, target_rows: int, temperature: float) -> None:
    """The draft loves id 33, which is no token: never proposed, never written, and the pair is accepted."""
    target = padded(target_rows, target_rows - 1, REAL, error=0)
    draft = padded(draft_rows, 33, draft_rows, error=1)
    drafter = ModelDrafter(draft)
    options = {"max_new_tokens": 30, "temperature": temperature, "seed": 1}
    found = run(Engine(target, drafter), [[1]], **options)
    plain = decode(lambda tokens: WORLD.target_logits(tokens)[:REAL], [1], **options)
    assert tokens_of(found) == [plain]
    assert found[0].stats.accepted > 0


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_voc_1_under_rules_that_read_draft_probs(rule: str) -> None:
    engine = Engine(padded(38, 37, REAL, error=0), ModelDrafter(padded(34, 33, 34, error=1)), rule=rule)
    completion = run(engine, [[1]], max_new_tokens=60, temperature=1.0, seed=1)[0]
    assert max(completion.token_ids) < REAL
    assert completion.stats.accepted > 0


def test_voc_1_a_model_head_wider_than_its_tokenizer_is_cut(tmp_path: Any) -> None:
    """A real loader: 23 rows in the model, 20 words in the tokenizer; the other three ids do not exist."""
    from helpers_models import llama, save_model

    folder = save_model(tmp_path, llama(dtype=torch.float32), words=20)
    engine = outrider.load(folder)
    assert engine.target.info.vocab_size == 20
    assert max(run(engine, [[1]], temperature=5.0, seed=1, max_new_tokens=60)[0].token_ids) < 20


@pytest.mark.parametrize("draft_pieces", [[b"<", b">", b"0", b"1", b"2"], [b"<1>", b"<1", b">", b"<2>", b"<12>", b"<"]])
@pytest.mark.parametrize("bridge", ["auto", "intersection", "text"])
def test_voc_4_texts_of_other_lengths_in_the_drafts_tokens(draft_pieces: list[bytes], bridge: Any) -> None:
    """Longer and shorter: no token or position of the target's ever reaches the draft model."""
    pieces = [f"<{index}>".encode() for index in range(3)] + [b"<", b">", b"1"]

    def draft_logits(tokens: Any) -> torch.Tensor:
        assert max(tokens) < len(draft_pieces)
        return WORLD.draft_logits(tokens)[: len(draft_pieces)]

    target = FunctionTarget(lambda tokens: WORLD.target_logits(tokens)[:6], 6)
    draft = FunctionTarget(draft_logits, len(draft_pieces))
    for model, words in ((target, pieces), (draft, draft_pieces)):
        model.tokenizer = PieceTokenizer(words)  # pyright: ignore[reportAttributeAccessIssue]
    engine = Engine(target, ModelDrafter(draft, bridge=bridge))
    for options in ({}, {"temperature": 1.0, "seed": 4}):
        found = run(engine, [[1], [2, 3, 4]], max_new_tokens=30, **options)
        plain = [
            decode(lambda tokens: WORLD.target_logits(tokens)[:6], p, max_new_tokens=30, **options)
            for p in ([1], [2, 3, 4])
        ]
        assert tokens_of(found) == plain
        assert sum(completion.stats.proposed for completion in found) > 0


def test_voc_4_another_tokenization_is_refused_where_no_bridge_is_wanted() -> None:
    target, draft = WORLD.target(), WORLD.target()
    target.tokenizer = PieceTokenizer([*PIECES[:39], b"<39>"])  # pyright: ignore[reportAttributeAccessIssue]
    draft.tokenizer = PieceTokenizer([*PIECES[:20], *(bytes([65 + i]) for i in range(20))])  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(PairingError, match=r"id 20: .*bridge=auto.*lookup"):
        Engine(target, ModelDrafter(draft, bridge="none"))


def test_voc_5_a_draft_of_fewer_tokens_drafts_what_it_knows() -> None:
    """The first 32 ids alone: the rest is never drafted, and the text is plain."""
    target = WORLD.target()
    target.tokenizer = PieceTokenizer(PIECES)  # pyright: ignore[reportAttributeAccessIssue]
    draft = FunctionTarget(lambda tokens: WORLD.target_logits(tokens)[:32], 32)
    draft.tokenizer = PieceTokenizer(PIECES[:32])  # pyright: ignore[reportAttributeAccessIssue]
    for options in ({}, {"temperature": 1.0, "seed": 4}):
        found = run(Engine(target, ModelDrafter(draft)), [[1]], max_new_tokens=40, **options)
        assert tokens_of(found) == [decode(WORLD.target_logits, [1], max_new_tokens=40, **options)]
        assert 0 < found[0].stats.accepted < found[0].stats.proposed


def test_voc_5_a_wrong_pair_is_refused_at_load() -> None:
    with pytest.raises(PairingError, match=r"8 tokens.*40|40.*8"):
        Engine(WORLD.target(), ModelDrafter(World(vocab_size=8).target()))


@pytest.mark.real
@pytest.mark.slow
def test_voc_2_voc_3_real_pair_of_two_tokenizers(models: Any) -> None:
    for name in ("smollm2-135m", "gemma3-270m"):
        models(name)
    with pytest.raises(PairingError) as caught:
        outrider.load("smollm2-135m", "model:gemma3-270m,bridge=none")
    message = str(caught.value)
    for part in ("49152", "262144", "first difference is id", "smollm2", "gemma3", "lookup"):
        assert part in message


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("bridge", ["auto", "intersection", "text"])
@pytest.mark.parametrize("name", ["qwen-0.5b", "gemma3-270m"])
def test_voc_4_smollm2_drafts_for_other_families(models: Any, name: str, bridge: str) -> None:
    for model in (name, "smollm2-135m"):
        models(model)
    engine = outrider.load(name, f"model:smollm2-135m,bridge={bridge}", max_rows=2, policy="fixed")
    plain = outrider.load(engine.target)
    prompts = ["The capital of France is", "def area(radius):\n    return"]
    for options in ({}, {"temperature": 0.8, "seed": 4}):
        found = run(engine, prompts, max_new_tokens=24, **options)
        assert tokens_of(found) == tokens_of(run(plain, prompts, max_new_tokens=24, **options))
        assert sum(completion.stats.accepted for completion in found) > 5
