"""The tables of the suite are complete: nothing that is found by name, no setting, goes untested."""

from dataclasses import fields

import found
import pytest
from found import MINIMAL_OPTIONS, SETTINGS, TEXT_ONLY, drafters, make_found

from helpers import World
from outrider import SamplingParams, available_drafters


def test_every_drafter_has_its_minimal_options() -> None:
    assert set(drafters()) == set(MINIMAL_OPTIONS)


def test_a_drafter_without_entry_fails_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "available_drafters", lambda: (*available_drafters(), "brand-new"))
    with pytest.raises(AssertionError, match="brand-new"):
        drafters()


def test_drafters_can_be_made_from_name_and_options() -> None:
    assert [make_found(name, World()).name for name in drafters()] == list(drafters())


def test_every_setting_is_tried_alone() -> None:
    alone = {name for given in SETTINGS.values() if len(given) <= 2 for name in given}
    assert {field.name for field in fields(SamplingParams)} - TEXT_ONLY - {"seed"} == alone
