"""What an engine is given: a target, and drafters by name."""

from collections.abc import Mapping

from outrider.drafters.base import Drafter
from outrider.errors import OptionError
from outrider.targets.base import TargetInfo


def by_name(drafter: Drafter | Mapping[str, Drafter] | None) -> dict[str, Drafter]:
    """Drafters by the names that requests use. Raises OptionError."""
    if drafter is None:
        return {}
    found = dict(drafter) if isinstance(drafter, Mapping) else {getattr(drafter, "name", ""): drafter}
    for name, one in found.items():
        if not isinstance(one, Drafter):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"drafter must be a Drafter, or several by name, not {one!r}; `load` takes names")
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"a drafter's name must be text, not {name!r}")
    return found


def check_target(target: object) -> None:
    """Raises OptionError for anything that is no Target, such as a name."""
    if not isinstance(getattr(target, "info", None), TargetInfo):
        raise OptionError(f"target must be a Target, not {target!r}; `load` takes names")
