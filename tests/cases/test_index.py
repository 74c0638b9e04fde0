"""Every case has its test, found by the id in the test's name, or its reason here why not.

U: pure function on small arrays. T: toy or stub model. S: small real model. All U and T cases must have a test.
"""

import re
from pathlib import Path

import pytest

CASES = {
    "GRE": ("TS", "TS", "S", "S", "TS", "S", "S", "TS"),
    "NUM": ("UT", "S", "T", "S", "S"),
    "DIS": ("U", "U", "U", "U", "T", "T"),
    "OPT": ("S", "UT", "UT", "UT", "S", "T"),
    "EOS": ("TS", "T", "T", "U", "S", "S", "T"),
    "LEN": ("TS", "T", "TS", "T", "T", "TS"),
    "KVR": ("TS", "TS", "UT", "T", "TS", "S", "TS"),
    "VOC": ("TS", "S", "S", "TS", "UT"),
    "NGR": ("U", "U", "UT", "UT", "U", "UT"),
    "SEE": ("TS", "T", "TS", "TS"),
    "LOG": ("UT", "T", "TS"),
    "MET": ("T", "UT", "UT", "T"),
    "SPD": ("US", "US", "S", "S"),
    "GRA": ("UT", "UT", "S"),
    "STR": ("U", "S", "S"),
    "CON": ("TS", "T", "T", "T", "T"),
    "CFG": ("T", "S", "T", "T", "S", "S"),
}
TAGS = {f"{family}-{number}": tags for family, row in CASES.items() for number, tags in enumerate(row, 1)}

ELSEWHERE = {
    "GRE-3": "the Qwen pair: `outrider certify` prints both logits at a first difference (tests/test_certify.py)",
    "NUM-2": "the report that classes differences is `outrider certify` (tests/test_certify.py)",
    "KVR-6": "`outrider bench` refuses to print a speed-up beside unequal outputs (tests/test_bench.py)",
    "GRA-3": "grammars have tests of their own; here a user's processor stands for them",
}
"""Cases without a test of that name, all of them S only."""

ONLY_IN_PART = {
    "VOC-5": "maps of ids for a reduced vocabulary come with trained heads: a smaller vocabulary is tested",
    "CFG-4": "head files come with trained heads: tested is that a mismatch names both sizes",
    "LOG-3": "prompt_logprobs is not offered: the test is that it is refused by name",
    "GRA-1": "a user's processor stands for the grammar; grammars have tests of their own",
    "GRA-2": "a user's processor stands for the grammar; grammars have tests of their own",
    "STR-1": "fields of reasoning are not offered: tested is that text and stops do not depend on chunks",
}
"""Cases whose test covers what the library offers today, and says so."""


REAL_ELSEWHERE = {
    "CFG-2": "the docs' commands are looked up in tests/test_docs.py, misspelt options in tests/test_cli_errors.py",
    "CFG-5": "every method of the command line runs in tests/test_cli_generate.py, the demo in tests/test_cli_demo.py",
    "CFG-6": "files that are broken or missing need no weights",
    "GRE-4": "a folder with the settings in question is written by the test; whose weights it holds does not matter",
    "GRE-8": "GRE-7 and KVR-5 are the same with real weights",
    "LOG-3": "refused before any weight is used",
    "SPD-1": "the advisor's arithmetic; `outrider bench` measures",
    "SPD-2": "the advisor's arithmetic; `outrider bench` measures",
}
"""Cases with an S whose tests use no real weights, and why that is enough."""


def with_test(*, real: bool = False) -> set[str]:
    """Ids in names of test functions: test_gre_1_..., test_eos_1_eos_2_... . real: of those with real weights."""
    found: set[str] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        text = path.read_text()
        whole = "\npytestmark = pytest.mark.real\n" in text
        for marks, name in re.findall(r"((?:^@.*\n(?:^[ \])].*\n)*)*)^def (test_\w+)", text, re.MULTILINE):
            if not real or whole or "@pytest.mark.real" in marks:
                ids = re.findall(r"_([a-z]{3})_(\d+)(?=_)", name)
                found |= {f"{family.upper()}-{number}" for family, number in ids}
    return found


@pytest.mark.parametrize("case", [case for case, tags in TAGS.items() if "U" in tags or "T" in tags])
def test_every_u_and_t_case_has_a_test(case: str) -> None:
    assert case in with_test()


@pytest.mark.parametrize("case", [case for case, tags in TAGS.items() if tags == "S"])
def test_every_s_case_has_a_test_or_a_reason(case: str) -> None:
    assert (case in with_test()) != (case in ELSEWHERE)


@pytest.mark.parametrize("case", [case for case, tags in TAGS.items() if "S" in tags and case not in ELSEWHERE])
def test_every_s_case_has_a_test_with_real_weights_or_a_reason(case: str) -> None:
    assert (case in with_test(real=True)) != (case in REAL_ELSEWHERE)


def test_names_and_tables_speak_of_real_cases() -> None:
    assert with_test() <= TAGS.keys()
    assert ONLY_IN_PART.keys() <= with_test()
    assert {TAGS[case] for case in ELSEWHERE} == {"S"}
