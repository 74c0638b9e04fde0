"""What `--profile` does to a command: target, drafters and policy come from the file, none overruled silently."""

from pathlib import Path
from typing import Any

import typer

from outrider.errors import OptionError
from outrider.planner.profile import Profile, load_profile


def with_profile(context: typer.Context, path: Path, engine: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `load` with what the profile says. Raises OptionError where the command line says otherwise."""
    profile = checked_profile(context, path, engine["target"])
    return {
        **engine,
        "target": profile.target,
        "drafter": profile.make_drafters() or None,
        "policy": profile.make_policy(),
        **profile.loading(),
    }


def checked_profile(context: typer.Context, path: Path, target: str) -> Profile:
    """The profile, if the command line asks for nothing that it decides and for no other target."""
    profile = load_profile(path)
    for name in ("drafter", "policy", "dtype", "device", "quantize"):
        if _typed(context, name):
            raise OptionError(f"--profile decides the {name}; leave out --{name}, or --profile")
    if _typed(context, "target"):
        profile.check_target(target)
    return profile


def _typed(context: typer.Context, name: str) -> bool:
    """Whether the option stands on the command line, rather than at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
