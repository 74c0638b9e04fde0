"""What a round of `suffix` costs behind a long text: below 1 ms at 32k tokens on a quiet machine."""

import random
import time
from statistics import median

import pytest

from outrider import SamplingParams
from outrider.drafters.base import DraftContext
from outrider.drafters.suffix import SuffixDrafter
from outrider.sampling.noise import Noise
from outrider.types import Plan


def long_text(length: int) -> list[int]:
    """Half new words, half copies of what was written before, as code and answers about a text have them."""
    random.seed(3)
    text = [random.randrange(5000) for _ in range(64)]
    while len(text) < length:
        start = random.randrange(len(text))
        text += text[start : start + random.randrange(1, 40)]
        text += [random.randrange(5000) for _ in range(random.randrange(20))]
    return text[:length]


def milliseconds(length: int, rounds: int = 60) -> float:
    """Median of a round that takes in three new tokens and drafts sixteen."""
    text, spent = long_text(length + 3 * rounds), list[float]()
    drafter = SuffixDrafter()
    drafter.begin(0, text[:length])
    params = SamplingParams().resolve({}, (), 5000)
    for end in range(length, length + 3 * rounds, 3):
        context = DraftContext(0, text[:end], length, params, Noise(0), "token", Plan("suffix", 16, 16), False)
        start = time.perf_counter()
        drafter.propose_row(context)
        spent.append(1000 * (time.perf_counter() - start))
    return median(spent[1:])  # the first takes in the prompt


@pytest.mark.slow
def test_a_round_behind_32k_tokens_is_cheap() -> None:
    short, long = milliseconds(1024), milliseconds(32_768)
    print(f"suffix: {short:.2f} ms a round behind 1k tokens, {long:.2f} ms behind 32k")
    assert long < 5.0  # five times the goal, for busy machines
    assert long < 10 * short + 1.0  # and nothing grows with the text
