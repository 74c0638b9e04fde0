"""Statistics for tests: joint laws by enumeration, total variation, and a chi-square test that pools rare cells."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from scipy.stats import chisquare

Text = tuple[int, ...]
LawAfter = Callable[[Text], Sequence[float]]


def joint_law(law_after: LawAfter, length: int, prefix: Text = ()) -> dict[Text, float]:
    """Chance of every text of `length` tokens after `prefix`; texts of chance 0 are left out."""
    texts: dict[Text, float] = {(): 1.0}
    for _ in range(length):
        texts = {
            (*text, token): chance * float(more)
            for text, chance in texts.items()
            for token, more in enumerate(law_after((*prefix, *text)))
            if more > 0
        }
    return texts


def total_variation(one: Mapping[Text, float], other: Mapping[Text, float]) -> float:
    return sum(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in {*one, *other}) / 2


def chi_square(samples: Iterable[Text], law: Mapping[Text, float], least_expected: float = 5.0) -> float:
    """p-value of the samples under `law`; 0 if a text that cannot occur was seen. Rare cells are pooled into one."""
    counts = Counter(samples)
    if any(law.get(text, 0.0) <= 0 for text in counts):
        return 0.0
    total = counts.total()
    seen: list[float] = []
    expected: list[float] = []
    rest_seen = rest_expected = 0.0
    for text, chance in law.items():
        if chance * total >= least_expected:
            seen.append(counts[text])
            expected.append(chance * total)
        else:
            rest_seen, rest_expected = rest_seen + counts[text], rest_expected + chance * total
    if rest_expected > 0:
        seen.append(rest_seen)
        expected.append(rest_expected)
    scale = sum(seen) / sum(expected)
    return float(chisquare(seen, [value * scale for value in expected]).pvalue)
