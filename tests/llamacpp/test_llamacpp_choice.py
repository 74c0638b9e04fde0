"""Which backend runs a model, and what is refused before anything is read."""

import sys
from pathlib import Path

import pytest

import outrider
from outrider.errors import ModelError, OptionError
from outrider.targets.llamacpp import build, library
from outrider.targets.llamacpp.facts import ModelFacts, choose_cache_tokens, choose_max_length
from outrider.targets.llamacpp.options import LlamaOptions, llama_options
from outrider.targets.loading import choose_backend, load_target

FACTS = ModelFacts("toy", 100, 104, 2048, 0, (2,), token_bytes=1 << 20)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTRIDER_BACKEND", raising=False)
    monkeypatch.setattr(library, "missing", lambda: "")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["smollm2-135m", "some/where/model.gguf"])
def test_auto_takes_llamacpp_for_gguf_files(name: str) -> None:
    assert choose_backend(name, "auto")[0] == "llama.cpp"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("org/model", {}, "not a GGUF file"),
        ("smollm2-135m", {"dtype": "float32"}, "dtype is float32"),
        ("smollm2-135m", {"device": "cuda"}, "device is 'cuda'"),
        ("smollm2-135m", {"exact": "bitwise"}, "exact is 'bitwise'"),
        ("smollm2-135m", {"quantize": "int8"}, "quantize is 'int8'"),
    ],
)
def test_auto_takes_torch_for_everything_else(name: str, options: dict[str, str], reason: str) -> None:
    backend, why = choose_backend(name, "auto", **options)
    assert backend == "torch"
    assert reason in why


def test_auto_takes_torch_where_llamacpp_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTRIDER_BACKEND", raising=False)
    monkeypatch.setattr(library, "missing", lambda: "llama-cpp-python is not installed")
    assert choose_backend("smollm2-135m", "auto") == ("torch", "llama-cpp-python is not installed")


@pytest.mark.usefixtures("installed")
def test_the_variable_says_what_auto_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_BACKEND", "torch")
    assert choose_backend("smollm2-135m", "auto")[0] == "torch"
    assert choose_backend("smollm2-135m", "llama.cpp")[0] == "llama.cpp"
    monkeypatch.setenv("OUTRIDER_BACKEND", "lama.cpp")
    with pytest.raises(OptionError, match=r"did you mean 'llama\.cpp'"):
        choose_backend("smollm2-135m", "auto")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "lama.cpp"}, "did you mean 'llama.cpp'"),
        ({"backend": "llama.cpp", "dtype": "bfloat16"}, "dtype is bfloat16.*backend='torch'"),
        ({"backend": "llama.cpp", "device": "cuda"}, "gpu_layers"),
        ({"backend": "torch", "backend_options": "threads=2"}, "leave them out"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        load_target("smollm2-135m", **options)  # type: ignore[arg-type]


def test_a_missing_library_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "missing", lambda: "llama-cpp-python is not installed")
    library.library.cache_clear()
    with pytest.raises(ModelError, match=r"not installed; make llamacpp.*backend='torch'"):
        outrider.load("smollm2-135m", backend="llama.cpp")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("thread=2", "no option 'thread'; did you mean 'threads'"),
        ("threads", "write NAME=VALUE"),
        ("threads=0", "threads is 0"),
        ("threads=two", "threads is 'two'"),
        ({"batch_size": 1}, "batch_size is 1"),
        ({"cache_type": "q5"}, "cache_type is 'q5'"),
        ("cache_type=q8_0,flash_attention=off", "needs flash attention"),
        ({"branches": 256}, "branches is 256"),
        ({"gpu_layers": -2}, "gpu_layers is -2"),
    ],
)
def test_bad_options_are_named(given: dict[str, int | str] | str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        llama_options(given)


def test_options_come_from_text_or_mapping() -> None:
    expected = LlamaOptions(threads=2, cache_type="q8_0")
    assert llama_options("threads=2,cache_type=q8_0") == llama_options({"threads": 2, "cache_type": "q8_0"}) == expected


def test_flash_attention_is_used_where_it_is_needed() -> None:
    assert LlamaOptions().flash_type == 0
    assert LlamaOptions(cache_type="q8_0").flash_type == 1
    assert LlamaOptions(gpu_layers=4).flash_type == -1
    assert [LlamaOptions(flash_attention=which).flash_type for which in ("on", "off")] == [1, 0]


def test_the_length_is_the_models_or_less() -> None:
    assert choose_max_length(FACTS, None) == 2048
    with pytest.raises(OptionError, match="max_length is 2049; toy here goes up to 2048"):
        choose_max_length(FACTS, 2049)
    with pytest.raises(OptionError, match="max_length is 0"):
        choose_max_length(FACTS, 0)


def test_the_cache_holds_every_row_or_two_gigabytes() -> None:
    assert choose_cache_tokens(FACTS, None, 2, 512, 10) == 1034
    assert choose_cache_tokens(FACTS, None, 100, 512, 10) == 2048 + 10
    assert choose_cache_tokens(FACTS, None, 1, 4096, 0) == 4096
    assert choose_cache_tokens(FACTS, 600, 2, 512, 10) == 610
    with pytest.raises(OptionError, match="cache_tokens is 100, less than one row"):
        choose_cache_tokens(FACTS, 100, 2, 512, 10)


def test_a_build_that_dies_is_one_clear_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The child process of the trial is killed by its first instruction; the parent lives and says what to do."""
    deadly = tmp_path / "trial.py"
    deadly.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    monkeypatch.setattr(library, "TRIAL", deadly)
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    with pytest.raises(
        ModelError, match=r"dies here with SIGILL .* rebuild it: python -m outrider.targets.llamacpp.build"
    ):
        library.check_runs(model)
    deadly.write_text("raise OSError('no such tensor')\n")
    with pytest.raises(ModelError, match=r"cannot run .*no such tensor"):
        library.check_runs(model)
    deadly.write_text("")
    library.check_runs(model)
    deadly.write_text("raise OSError('asked again')\n")
    library.check_runs(model)  # what passed is noted
    model.write_bytes(b"GGUF, another")
    with pytest.raises(ModelError, match="asked again"):
        library.check_runs(model)


def test_amx_is_left_to_clang() -> None:
    """gcc 12's native build dies in its first AMX instruction."""
    flags = ["avx2", "avx512f", "amx_tile"]
    assert "-DGGML_NATIVE=ON" in build.switches("clang", flags)
    assert "-DGGML_NATIVE=ON" in build.switches("gcc", ["avx2"])
    safe = build.switches("gcc", flags)
    assert {"-DGGML_NATIVE=OFF", "-DGGML_AMX_TILE=OFF", "-DGGML_AMX_INT8=OFF", "-DGGML_AVX512=ON"} <= set(safe)
    assert "-DGGML_AVX512_VNNI=ON" not in safe


def test_without_a_compiler_the_build_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert build.main(["--if-cached"]) == build.NO_COMPILER
    assert "no C and C++ compiler on PATH" in capsys.readouterr().err


def test_nothing_is_built_where_only_the_cache_was_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "wheel_folder", lambda compiler, chosen: tmp_path / "wheels")
    monkeypatch.setattr(build, "compilers", lambda: (sys.executable, sys.executable))
    assert build.main(["--if-cached"]) == 2
    assert "`make llamacpp` builds one" in capsys.readouterr().out
