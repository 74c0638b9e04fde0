"""STR: streaming and text assembly: the same text however the tokens arrive."""

from typing import Any

import pytest

from helpers import World, run, script, with_text
from outrider import Engine
from outrider.testing import FunctionDrafter, FunctionTarget
from outrider.text import StopChecker, TextStream

EMOJI = "😀".encode()
PIECES = [b" thought", b"</think>", b" answer", *(bytes([byte]) for byte in EMOJI), b"x", b"\xff", b"</", b"think> a"]
SMILE = [3, 4, 5, 6]


def spoken(ids: list[int], max_depth: int) -> Engine:
    target = with_text(FunctionTarget(script({(7,): ids}, len(PIECES)), len(PIECES)), PIECES)
    return Engine(target, FunctionDrafter(lambda tokens, depth: ids[len(tokens) - 1 :][:max_depth]))


def pieces_of(ids: list[int], depth: int, **options: Any) -> list[str]:
    engine = spoken(ids, depth)
    texts = [event.text for event in engine.stream([7], max_new_tokens=len(ids), max_depth=depth, **options)]
    assert "".join(texts) == run(engine, [[7]], max_new_tokens=len(ids), max_depth=depth, **options)[0].text
    return texts


@pytest.mark.parametrize("depth", range(7))
def test_str_1_a_marker_inside_a_block_loses_nothing(depth: int) -> None:
    """Blocks of 1 to 7 tokens: text around '</think>' joins to the same, with and without a stop there."""
    for ids in ([0, 1, 2, 7], [0, 9, 10, 7], [7, 0, 1, 1, 2]):
        whole = b"".join(PIECES[i] for i in ids).decode()
        assert "".join(pieces_of(ids, depth)) == whole
        assert "".join(pieces_of(ids, depth, stop="</think>")) == whole.partition("</think>")[0]
        kept = whole.partition("</think>")
        assert "".join(pieces_of(ids, depth, stop="</think>", include_stop=True)) == kept[0] + kept[1]


@pytest.mark.parametrize("depth", range(7))
def test_str_2_a_character_is_shown_whole_or_not_at_all(depth: int) -> None:
    """Four tokens of one character, split in every way over rounds."""
    for before in range(4):
        texts = pieces_of([7] * before + SMILE + [7], depth)
        assert "".join(texts) == "x" * before + "😀x"
        assert not any("\ufffd" in text for text in texts)


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("depth", [0, 2, 4])
def test_str_2_a_budget_inside_a_character_ends_with_a_mark(cut: int, depth: int) -> None:
    texts = pieces_of([7, *SMILE[:cut]], depth)
    assert "".join(texts) == cut_text(cut)
    assert all("\ufffd" not in text for text in texts[:-1])


def cut_text(cut: int) -> str:
    return (b"x" + EMOJI[:cut]).decode(errors="replace")


@pytest.mark.parametrize("depth", range(9))
def test_str_3_two_characters_and_a_true_replacement(depth: int) -> None:
    ids = [*SMILE, *SMILE, 8, 7, 8]
    assert "".join(pieces_of(ids, depth)) == "😀😀\ufffdx\ufffd"


def test_str_1_stream_and_stop_alone_do_not_depend_on_chunks() -> None:
    """The two classes by themselves, pushed token by token: every prefix of the text is a prefix of the whole."""
    target = with_text(World(len(PIECES)).target(), PIECES)
    stream, checker, shown = TextStream(target.tokenizer), StopChecker(("</think>",), False), ""
    for token in [0, 7, *SMILE, 9, 10, 2]:
        if not checker.matched:
            shown += checker.push(stream.push(token), stream.pending)
        assert " thoughtx😀".startswith(shown)
    assert checker.matched == "</think>"
    assert shown == " thoughtx😀"


@pytest.mark.real
@pytest.mark.parametrize("text", ["😀 fine", "🙂🙂", "日本語のテキスト", "naïve café — ok"])
def test_str_2_str_3_real_tokenizer(smollm2: Any, text: str) -> None:
    """Tokens of a real byte-level tokenizer, one by one: the joined stream is the decoded text."""
    tokenizer = smollm2(None).target.tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False)
    stream = TextStream(tokenizer)
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.flush() == text
    assert not any("\ufffd" in piece for piece in pieces)
