"""`outrider loadtest`: how much a server writes per second for 1 to 16 clients, with speculation and without."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from outrider.cli.options import DEFAULT_DRAFTER, DEFAULT_TARGET
from outrider.cli.serve import first_key
from outrider.errors import EngineError, OptionError
from outrider.prompts import load_prompts

Url = Annotated[str | None, typer.Option(help="A running server; default: one is started for the measurement.")]
Target = Annotated[str, typer.Option(help="The model to serve, and its name in requests.")]
Drafter = Annotated[str, typer.Option(help="What drafts, if a server is started.")]
Clients = Annotated[str, typer.Option(help="Numbers of clients.")]
Requests = Annotated[int, typer.Option(help="Requests of each client at each level.", min=1)]
MaxTokens = Annotated[int, typer.Option(help="Tokens of every answer.", min=1)]
Prompts = Annotated[str, typer.Option(help="`own`, or a .jsonl file of prompts.")]


def register(app: typer.Typer) -> None:
    app.command()(loadtest)


def loadtest(
    *,
    url: Url = None,
    target: Target = DEFAULT_TARGET,
    drafter: Drafter = DEFAULT_DRAFTER,
    clients: Clients = "1,2,4,8,16",
    requests: Requests = 2,
    max_tokens: MaxTokens = 64,
    prompts: Prompts = "own",
) -> None:
    """Measure throughput over HTTP. The last line is JSON; exit 1 if answers differ."""
    from outrider.server.load import LoadClient, run_levels, table

    numbers = _numbers(clients)
    messages = [_messages(one.prompt) for one in load_prompts(prompts)]
    with _server(url, target, drafter, max(numbers)) as address:
        client = LoadClient(address, target, messages, max_tokens=max_tokens, api_key=first_key())
        levels = run_levels(client, numbers, requests, lambda level: print(f"{level.clients} done", file=sys.stderr))
    print(table(levels))
    print(
        json.dumps(
            {"target": target, "drafter": None if url else drafter, "levels": [level.to_dict() for level in levels]}
        )
    )
    if not all(level.equal for level in levels):
        raise typer.Exit(1)


def _numbers(text: str) -> list[int]:
    if not re.fullmatch(r"[1-9]\d{0,2}(,[1-9]\d{0,2})*", text):
        raise OptionError(f"clients is {text!r}; write numbers such as 1,2,4,8,16")
    return [int(number) for number in text.split(",")]


def _messages(prompt: object) -> list[object]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], dict):
        return list(prompt)
    raise OptionError("the load benchmark needs prompts that are text or chat messages, not token ids")


@contextmanager
def _server(url: str | None, target: str, drafter: str, rows: int) -> Generator[str]:
    """The address of a server; one that was started here ends with the block."""
    if url is not None:
        yield url
        return
    command = [sys.executable, "-m", "outrider.cli", "serve", "--port", "0", "--target", target, "--drafter", drafter]
    process = subprocess.Popen(
        [*command, "--max-rows", str(rows), "--no-prefix-reuse"], stderr=subprocess.PIPE, text=True
    )
    try:
        yield _address(process)
    finally:
        process.terminate()
        process.wait()


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"listening on (\S+)", line):
            _forget(process)
            return found.group(1)
    raise EngineError(f"the server did not start: {' '.join(said).strip() or 'no reason given'}")


def _forget(process: "subprocess.Popen[str]") -> None:
    """Go on reading what the server logs, so that its pipe never fills; closed at its end."""

    def read() -> None:
        assert process.stderr is not None
        with process.stderr as stream:
            for _ in stream:
                pass

    threading.Thread(target=read, daemon=True).start()
