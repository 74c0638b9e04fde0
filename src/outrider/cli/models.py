"""`outrider models`: the small models that need no model hub."""

from typing import Annotated

import typer

from outrider import models as demo_models
from outrider.cli.terminal import notes_console, wrapped


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Fetch and list the small models that need no model hub.")
    group.command("list")(list_models)
    group.command("pull")(pull)
    app.add_typer(group, name="models")


def list_models() -> None:
    """List the models, their size and licence, and whether they are here."""
    for listed in demo_models.listing():
        model, state = listed.model, "here" if listed.path else "-"
        line = f"{model.name:14}{model.megabytes:>5} MB  {state:6}{model.licence}: {model.about}"
        print(wrapped(line, indent=30))


def pull(name: Annotated[str, typer.Argument(help="A name from `outrider models list`.")]) -> None:
    """Fetch a model into the cache folder; print where it is.

    Its checksum is verified before it counts as here.
    """
    notes = notes_console()
    print(demo_models.pull(name, lambda text: notes.print(text, markup=False)))
