"""Streaming text: equal to decoding everything at once, never half a character, stops found however text is cut."""

import copy
import random
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from outrider.text import StopChecker, TextStream

MODELS = Path.home() / ".cache/outrider/models"
UNKNOWN = "\ufffd"


class Wrapped:
    """A `tokenizers` tokenizer with the names that the engine uses, counting how many ids it was asked to decode."""

    def __init__(self, inner: Tokenizer) -> None:
        self.inner = inner
        self.num_decoded = 0

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return self.inner.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        self.num_decoded += len(token_ids)
        return self.inner.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def ids(self, *tokens: str) -> list[int]:
        found = [self.inner.token_to_id(token) for token in tokens]
        assert None not in found
        return found


WORDS = ["▁", "a", "b", "▁a", "▁the", "ion", "ized", "▁ion", "▁protons", "11", "▁ ", "é", "🙂", ".", "▁.", "\n"]


@cache
def byte_fallback() -> Wrapped:
    """Llama-2's kind: ▁ for spaces, bytes for what the vocabulary lacks, one leading space dropped."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
    inner = Tokenizer(
        models.BPE(
            {token: i for i, token in enumerate(tokens)}, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True
        )
    )
    inner.add_special_tokens([AddedToken(token, special=True) for token in tokens[:3]])
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Wrapped(inner)


@cache
def metaspace() -> Wrapped:
    """SentencePiece unigram without bytes (T5's kind): the first token's space is dropped."""
    tokens = ["<unk>", "<s>", "</s>", *WORDS]
    inner = Tokenizer(models.Unigram([(token, -float(i)) for i, token in enumerate(tokens)], 0, False))
    inner.add_special_tokens([AddedToken(token, special=True) for token in tokens[:3]])
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    return Wrapped(inner)


@cache
def byte_level() -> Wrapped:
    """GPT-2's kind, bytes only: every character beyond ASCII takes several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<end>", *alphabet])}
    inner = Tokenizer(models.BPE(vocabulary, []))
    inner.add_special_tokens([AddedToken("<end>", special=True)])
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return Wrapped(inner)


@cache
def smollm2() -> Wrapped:
    """Byte-level with merges. The GGUF file holds the same tokenizer, but takes half a minute to open."""
    converted, file = MODELS / "hf/smollm2-135m/tokenizer.json", MODELS / "smollm2-135m.gguf"
    if converted.exists():
        return Wrapped(Tokenizer.from_file(str(converted)))
    if not file.exists():
        pytest.skip("SmolLM2 is not in the cache")
    from transformers import AutoTokenizer

    return Wrapped(AutoTokenizer.from_pretrained(str(MODELS), gguf_file=file.name).backend_tokenizer)


@cache
def qwen() -> Wrapped:
    """Byte-level, with merges of pieces of characters."""
    return _converted("qwen-0.5b")


@cache
def gemma() -> Wrapped:
    """Byte fallback without a dropped leading space."""
    return _converted("gemma3-270m")


def _converted(name: str) -> Wrapped:
    file = MODELS / "hf" / name / "tokenizer.json"
    if not file.exists():
        pytest.skip(f"{name} is not in the cache")
    return Wrapped(Tokenizer.from_file(str(file)))


BUILT = {"byte_fallback": byte_fallback, "metaspace": metaspace, "byte_level": byte_level}
EVERY = [*BUILT.values(), *(pytest.param(make, marks=pytest.mark.real) for make in (smollm2, qwen, gemma))]


def pieces(tokenizer: Wrapped, ids: Sequence[int], skip: bool = True) -> list[str]:
    stream = TextStream(tokenizer, skip)
    return [*(stream.push(token_id) for token_id in ids), stream.flush()]


def streamed(tokenizer: Wrapped, ids: Sequence[int], skip: bool = True) -> str:
    return "".join(pieces(tokenizer, ids, skip))


def random_ids(tokenizer: Wrapped, rng: random.Random) -> list[int]:
    """Runs of bytes, words and anything: uniform ids alone would hardly ever make a character of bytes."""
    size = tokenizer.inner.get_vocab_size()
    out: list[int] = []
    while len(out) < 60:
        kind = rng.randrange(4)
        if kind == 0:
            out += [rng.randrange(size) for _ in range(rng.randrange(1, 8))]
        elif kind == 1:
            out += tokenizer.encode("".join(rng.choice("aé🙂 漢\n.\u0e01") for _ in range(6)), add_special_tokens=False)
        elif kind == 2:
            out += [rng.randrange(3)] * rng.randrange(3)
        else:
            out = out[: -rng.randrange(1, 4)]
    return out


# ---- equality with decoding everything at once


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("skip", [True, False])
def test_random_ids_stream_as_they_decode(make, skip):
    tokenizer = make()
    for seed in range(25):
        ids = random_ids(tokenizer, random.Random(seed))
        assert streamed(tokenizer, ids, skip) == tokenizer.decode(ids, skip_special_tokens=skip), (seed, ids)


@pytest.mark.parametrize("make", BUILT.values(), ids=BUILT)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_ids_stream_as_they_decode(make, data):
    tokenizer = make()
    ids = data.draw(st.lists(st.integers(0, tokenizer.inner.get_vocab_size() - 1), max_size=40))
    assert streamed(tokenizer, ids) == tokenizer.decode(ids)


@pytest.mark.parametrize("make", EVERY)
def test_text_at_every_token_is_a_beginning_of_the_final_text(make):
    """What was shown is never taken back, and what is pending stands if the text ends there."""
    tokenizer = make()
    for seed in range(20):
        ids = random_ids(tokenizer, random.Random(seed))
        stream, shown = TextStream(tokenizer), ""
        for count, token_id in enumerate(ids, 1):
            shown += stream.push(token_id)
            assert tokenizer.decode(ids).startswith(shown)
            assert tokenizer.decode(ids[:count]).rstrip(UNKNOWN) == (shown + stream.pending).rstrip(UNKNOWN)


def test_a_naive_token_by_token_decode_fails_the_same_check():
    tokenizer = byte_fallback()
    ids = tokenizer.ids("▁the", "▁the", "<0xC3>", "<0xA9>")
    assert "".join(tokenizer.decode([token_id]) for token_id in ids) != tokenizer.decode(ids)
    assert streamed(tokenizer, ids) == tokenizer.decode(ids) == "the theé"


def test_leading_spaces_survive_the_window():
    """EOS-6's cause: a window that starts anew drops the space of its first token."""
    for tokenizer in (byte_fallback(), metaspace()):
        ids = tokenizer.ids("▁the", "<s>", "▁the", "</s>", "▁", "▁the") * 20
        assert streamed(tokenizer, ids) == tokenizer.decode(ids)


# ---- STR-2, STR-3: characters of several tokens


def test_str_2_a_character_of_four_tokens_comes_whole():
    for tokenizer in (byte_level(), byte_fallback()):
        ids = tokenizer.encode("😀", add_special_tokens=False)[-4:]
        got = pieces(tokenizer, ids)
        assert "".join(got) == "😀"
        assert set(got) <= {"", "😀"}


def test_str_2_a_text_cut_inside_a_character_ends_as_it_decodes():
    for tokenizer in (byte_level(), byte_fallback()):
        ids = tokenizer.encode("a😀", add_special_tokens=False)
        for length in range(len(ids) + 1):
            assert streamed(tokenizer, ids[:length]) == tokenizer.decode(ids[:length])


def test_str_3_two_characters_of_four_bytes_each_at_every_length():
    for tokenizer in (byte_level(), byte_fallback()):
        ids = [i for _ in range(2) for i in tokenizer.encode("😀", add_special_tokens=False)[-4:]]
        assert len(ids) == 8
        for length in range(9):
            got = pieces(tokenizer, ids[:length])
            assert "".join(got) == tokenizer.decode(ids[:length])
            assert not any(UNKNOWN in piece for piece in got[:-1])


@pytest.mark.parametrize("character", ["é", "ࠀ", "漢", "퓿", "\ue000", "😀", "\U000e0800", "\U00100000"])
def test_a_character_with_any_first_byte_is_never_shown_in_part(character):
    """The second byte's range depends on the first (E0, ED, F0 and F4 are special)."""
    for tokenizer in (byte_level(), byte_fallback()):
        ids = tokenizer.encode(character, add_special_tokens=False)[-len(character.encode()) :]
        for before in ([], ids, ids[:1]):
            got = pieces(tokenizer, [*before, *ids])
            assert "".join(got) == tokenizer.decode([*before, *ids])
            if before != ids[:1]:
                assert not any(UNKNOWN in piece for piece in got)


def test_a_byte_level_character_is_shown_with_its_last_token():
    tokenizer = byte_level()
    assert pieces(tokenizer, tokenizer.encode("é漢")) == ["", "é", "", "", "漢", ""]


def test_a_true_replacement_character_is_delivered():
    for tokenizer in (byte_level(), byte_fallback()):
        ids = tokenizer.encode(f"a{UNKNOWN}b{UNKNOWN}", add_special_tokens=False)
        assert streamed(tokenizer, ids) == f"a{UNKNOWN}b{UNKNOWN}"


def test_a_byte_run_is_withheld_until_nothing_can_spoil_it_but_is_pending():
    tokenizer = byte_fallback()
    stream = TextStream(tokenizer)
    line_break, lead, word = tokenizer.ids("<0x0A>", "<0xF0>", "▁the")
    assert (stream.push(line_break), stream.pending) == ("", "\n")
    assert (stream.push(lead), stream.pending) == ("", "")
    assert stream.push(word) == UNKNOWN * 2 + " the"  # as the tokenizer itself says of a broken run


def test_a_very_long_byte_run_is_shown_before_it_ends():
    tokenizer = byte_fallback()
    ids = tokenizer.encode("😀", add_special_tokens=False)[-4:] * 60
    got = pieces(tokenizer, ids)
    assert "".join(got) == "😀" * 60
    assert len([piece for piece in got if piece]) >= 3


# ---- cost, copies


@pytest.mark.parametrize("make", EVERY)
def test_the_cost_of_a_token_does_not_grow_with_the_text(make):
    tokenizer = make()
    unit = tokenizer.encode("a the é🙂 ion\n", add_special_tokens=False)

    def cost(repeats: int) -> float:
        before = tokenizer.num_decoded
        pieces(tokenizer, unit * repeats)
        return (tokenizer.num_decoded - before) / (repeats * len(unit))

    assert cost(100) < 1.2 * cost(10) + 1


def test_the_cost_is_bounded_for_broken_bytes_too():
    for tokenizer in (byte_level(), byte_fallback()):
        continuation = tokenizer.encode("😀", add_special_tokens=False)[-1]
        before = tokenizer.num_decoded
        assert streamed(tokenizer, [continuation] * 2000) == UNKNOWN * 2000
        assert (tokenizer.num_decoded - before) / 2000 < 250


def test_a_copy_goes_its_own_way_and_shares_the_tokenizer():
    tokenizer = byte_level()
    first, second = tokenizer.encode("é")
    stream = TextStream(tokenizer)
    stream.push(first)
    twin = copy.deepcopy(stream)
    assert twin._tokenizer is tokenizer
    assert (stream.push(second), twin.flush()) == ("é", UNKNOWN)


def test_a_tokenizer_that_refuses_unknown_text_streams_too():
    class Letters:
        def encode(self, text, *, add_special_tokens=True):
            return ["ab".index(letter) for letter in text]

        def decode(self, token_ids, *, skip_special_tokens=True):
            return "".join("ab"[token_id] for token_id in token_ids)

        def encode_chat(self, messages):
            raise NotImplementedError

    stream = TextStream(Letters())
    assert [stream.push(i % 2) for i in range(40)] == ["a", "b"] * 20


# ---- stop strings


def checked(stops: tuple[str, ...], parts: Sequence[str], include: bool = False) -> tuple[str, str | None]:
    checker = StopChecker(stops, include)
    out = "".join(checker.push(part) for part in parts) + checker.flush()
    return out, checker.matched


def cut_by_hand(stops: tuple[str, ...], text: str, include: bool = False) -> tuple[str, str | None]:
    """Character by character: the first end of a match, then the longest stop that ends there."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


def chunkings(text: str) -> list[list[str]]:
    """All ways to cut the text into pieces."""
    out: list[list[str]] = []
    for cuts in product([False, True], repeat=len(text) - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(text)]
        out.append([text[a:b] for a, b in pairwise(edges)])
    return out


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(
    ("stops", "text"),
    [
        (("</s>",), "ab</s>cd"),
        (("aab",), "aaaabaab"),
        (("abab", "ba"), "xabab"),
        (("b", "abc"), "zabc"),
        (("abc", "bc", "c"), "zabcabc"),
        (("xyz",), "wxyxyxz"),
        (("x\n\n", "\n"), "ax\n\nb"),
        ((), "hello"),
        (("hello",), "hell"),
    ],
)
def test_str_1_stops_do_not_depend_on_the_pieces(stops, text, include):
    for parts in chunkings(text):
        assert checked(stops, parts, include) == cut_by_hand(stops, text, include), parts


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("ab", max_size=5), max_size=8),
    st.booleans(),
)
def test_any_stops_over_any_pieces(stops, parts, include):
    assert checked(tuple(stops), parts, include) == cut_by_hand(tuple(stops), "".join(parts), include)


def test_only_what_may_begin_a_stop_is_held_back():
    checker = StopChecker(("STOP",))
    assert [checker.push(piece) for piece in ("go S", "TO", "x", "ST", "OP more")] == ["go ", "", "STOx", "", ""]
    assert checker.matched == "STOP"
    assert (checker.push("later"), checker.flush()) == ("", "")


def test_nothing_is_held_back_where_the_stop_is_shown_anyway():
    checker = StopChecker(("STOP",), include_stop=True)
    assert [checker.push(piece) for piece in ("go S", "TO", "P more")] == ["go S", "TO", "P"]


def test_pending_text_completes_a_stop_but_is_otherwise_forgotten():
    checker = StopChecker(("b\n",))
    assert checker.push("ab", pending="x") == "a"
    assert checker.push("", pending="\n") == ""
    assert checker.matched == "b\n"
    other = StopChecker(("\n",))
    assert (other.push("a", pending="z"), other.push("\n"), other.matched) == ("a", "", "\n")


# ---- both together, token by token as the engine does


def read(tokenizer: Wrapped, ids: Sequence[int], stops: tuple[str, ...], include: bool = False):
    """Text, matched stop and number of tokens, of a completion that ends at its first stop."""
    stream, checker, text = TextStream(tokenizer), StopChecker(stops, include), ""
    for count, token_id in enumerate(ids, 1):
        text += checker.push(stream.push(token_id), stream.pending)
        if checker.matched is not None:
            return text, checker.matched, count
    text += checker.push(stream.flush()) + checker.flush()
    return text, checker.matched, len(ids)


@pytest.mark.parametrize("make", EVERY)
def test_the_token_that_completes_a_stop_is_the_last(make):
    """EOS-5: text and tokens agree about the cut: the stop is in the text of the kept tokens, not in those before."""
    tokenizer, stops = make(), ("a🙂", "ion", " a", "\n", "é")
    num_matched = 0
    for seed in range(60):
        ids = random_ids(tokenizer, random.Random(seed))
        for include in (False, True):
            text, matched, count = read(tokenizer, ids, stops, include)
            for length, shown in enumerate(map(tokenizer.decode, accumulate(([i] for i in ids), list.__add__)), 1):
                present = any(stop in shown for stop in stops)
                if present and length < count:
                    pytest.fail(f"a stop was passed over at token {length} of {ids}")
            if matched is not None:
                num_matched += 1
                assert (text, matched) == cut_by_hand(stops, tokenizer.decode(ids[:count]), include)
    assert num_matched > 20


def test_a_line_break_made_of_a_byte_stops_at_its_own_token():
    tokenizer = byte_fallback()
    ids = tokenizer.ids("▁the", "<0x0A>", "▁a", "b")
    assert read(tokenizer, ids, ("\n",)) == ("the", "\n", 2)
    assert read(tokenizer, ids, ("\n",), include=True) == ("the\n", "\n", 2)


def test_eos_6_stops_of_different_length_as_the_reader_sees_them():
    for tokenizer in (byte_fallback(), metaspace()):
        ids = tokenizer.ids("▁the", "▁protons", "▁ion", "ized", "▁a")
        stops = ("the 11 protons", "ionized")
        assert read(tokenizer, ids, stops) == ("the protons ", "ionized", 4)
        ids = tokenizer.ids("▁the", "▁", "11", "▁protons", "▁ion", "ized")
        assert read(tokenizer, ids, stops) == ("", "the 11 protons", 4)


def test_half_a_character_completes_no_stop():
    tokenizer = byte_level()
    ids = tokenizer.encode("xéy")
    assert read(tokenizer, ids, ("é",)) == ("x", "é", 3)


@pytest.mark.real
def test_real_text_streams_with_visible_progress():
    tokenizer = smollm2()
    text = "日本語のテキスト 🙂🙂 — “quoted” naïve café\n\n    indented = {'a': 1}\n" * 3
    ids = tokenizer.encode(text, add_special_tokens=False)
    got = pieces(tokenizer, ids)
    assert "".join(got) == text
    assert not any(UNKNOWN in piece for piece in got)
    assert sum(bool(piece) for piece in got) > len(ids) / 2
