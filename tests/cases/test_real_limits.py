"""Cases of LEN and VOC with real weights: context limits of target and draft, and ids that mean nothing."""

from typing import Any

import pytest

from helpers import run
from outrider import Engine
from outrider.drafters.model import ModelDrafter
from outrider.errors import PromptError
from outrider.targets.base import Target
from outrider.types import Packed

pytestmark = pytest.mark.real
LIMIT = 40
PROMPT = "One day a little girl named Lily went to the park. She saw a"


def test_len_3_prompts_at_the_limit(short_twin: Target) -> None:
    """One below the limit: exactly one token. At it or above: a refusal that names both numbers."""
    engine = Engine(short_twin)
    last = run(engine, [list(range(300, 300 + LIMIT - 1))], max_new_tokens=10)[0]
    assert (len(last.token_ids), last.finish_reason) == (1, "length")
    for size in (LIMIT, LIMIT + 1):
        with pytest.raises(PromptError, match=rf"{size} tokens.*{LIMIT}"):
            engine.submit([300] * size)
    assert not short_twin.length(0)


def test_len_6_the_draft_models_context_ends_and_drafting_with_it(
    smollm2: Any, short_twin: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draft model never evaluates more than it drafts and lacks, and nothing once its 40 tokens are full."""
    seen: list[int] = []
    score = short_twin.score

    def counted(packed: Packed, *rest: Any) -> Any:
        seen[-1] += packed.num_nodes
        return score(packed, *rest)

    monkeypatch.setattr(short_twin, "score", counted)
    engine = Engine(smollm2(None).target, ModelDrafter(short_twin))
    handle = engine.submit(PROMPT, max_new_tokens=28, max_depth=4, ignore_eos=True)
    while not handle.done:
        seen.append(0)
        engine.step()
    completion = handle.completion
    first = len(completion.prompt_token_ids)
    assert seen[0] <= first + 4
    assert max(seen[1:]) <= 4 + 2
    assert completion.stats.accepted == completion.stats.proposed > 10
    full = [count == 0 for count in seen]
    assert full == sorted(full)
    assert sum(full) >= first + 28 - LIMIT - 1
    assert [("40" in warning) for warning in completion.stats.warnings] == [True]
    assert completion.token_ids == run(smollm2(None), [PROMPT], max_new_tokens=28, ignore_eos=True)[0].token_ids


def test_voc_1_rows_beyond_the_tokenizer_are_neither_written_nor_drafted(smollm2: Any, short_twin: Target) -> None:
    """The wider model, whose last row scores high, as target and as draft, at a temperature at which ids vary."""
    real = smollm2(None).target.info.vocab_size
    assert short_twin.info.vocab_size == real
    hot = {"max_new_tokens": 12, "temperature": 1.5, "seed": 5, "ignore_eos": True}
    narrow = run(smollm2(None), [PROMPT], **hot)[0]
    wide = run(Engine(short_twin), [PROMPT], **hot)[0]
    drafted = run(Engine(smollm2(None).target, ModelDrafter(short_twin)), [PROMPT], **hot)[0]
    assert narrow.token_ids == wide.token_ids == drafted.token_ids
    assert max(narrow.token_ids) < real
    assert drafted.stats.accepted == drafted.stats.proposed > 0


@pytest.mark.slow
def test_voc_1_a_pair_whose_heads_are_wider_than_their_tokenizers(models: Any) -> None:
    """Qwen's head has 151,936 rows for 151,665 tokens; very hot texts hold no id beyond."""
    import outrider

    models("qwen-0.5b")
    engine = outrider.load("qwen-0.5b", "lookup", max_rows=4)
    assert engine.target.info.vocab_size == 151_665
    found = run(engine, ["a"] * 4, max_new_tokens=16, temperature=50.0, seed=1, ignore_eos=True)
    assert max(token for completion in found for token in completion.token_ids) < 151_665
