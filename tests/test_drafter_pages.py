"""The pages of docs/drafters say what the drafters' files say, and keep what was written below the line."""

from pathlib import Path

import pytest

import drafter_pages
from outrider import available_drafters
from outrider.drafters.registry import options_of


@pytest.mark.parametrize("name", available_drafters())
def test_every_drafter_has_its_present_page(name: str) -> None:
    path = drafter_pages.FOLDER / f"{name}.md"
    assert path.exists(), "run `make pages`"
    assert path.read_text("utf-8") == drafter_pages.pages()[path], "run `make pages`"
    assert all(f"`{option}`" in path.read_text("utf-8") for option in options_of(name))


def test_there_is_no_page_without_a_drafter() -> None:
    assert {path.stem for path in drafter_pages.FOLDER.glob("*.md")} == set(available_drafters())


def test_what_was_measured_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafter_pages, "FOLDER", tmp_path / "pages")
    drafter_pages.write()
    path = tmp_path / "pages" / "lookup.md"
    fresh = path.read_text("utf-8")
    path.write_text(fresh.replace("Not measured", "Measured: 3.").replace("# lookup", "# old"), "utf-8")
    (path.parent / "gone.md").write_text("x", "utf-8")
    drafter_pages.write()
    assert path.read_text("utf-8") == fresh.replace("Not measured", "Measured: 3.")
    assert not (path.parent / "gone.md").exists()
