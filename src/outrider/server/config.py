"""What a server can be told. Every default is written here once; the command line is made from these fields."""

import math
from dataclasses import dataclass, fields
from typing import Any

from outrider.errors import OptionError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Settings of one server. Times in seconds.

    host: the address to listen on; anything but loopback needs an API key, or insecure. port: 0 picks a free one.
    api_key: clients must send it as a bearer token; several separated by commas; default $OUTRIDER_API_KEY.
    insecure: listen beyond loopback without a key.
    model_name: what clients call the model; default the target's name.
    max_tokens: most tokens that one answer may have, and what a chat has if it does not say.
    max_waiting: most requests in the queue; a further one gets 429.
    max_clients: most open requests over all clients; a further one gets 503.
    max_choices: most answers to one request (n times prompts).
    max_body_bytes: largest body of a request.
    max_pending_bytes: most bytes of bodies that open requests hold together; a further request gets 503.
    deadline: most seconds one request may take; a request may ask for less.
    body_timeout: seconds in which a request's body must arrive. send_timeout: seconds a reader may block its stream.
    drain: seconds that running answers get to finish at shutdown.
    log_prompts: write prompts and answers into the log.
    memory_floor_mib: MiB of free memory below which warm texts, then drafters' models are given up; 0 for never.
    no_prefix_reuse: every prompt is computed in full, so that no client can tell by the time what others asked.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    insecure: bool = False
    model_name: str | None = None
    max_tokens: int = 4096
    max_waiting: int = 64
    max_clients: int = 256
    max_choices: int = 16
    max_body_bytes: int = 1 << 22
    max_pending_bytes: int = 1 << 26
    deadline: float = 600.0
    body_timeout: float = 30.0
    send_timeout: float = 60.0
    drain: float = 30.0
    log_prompts: bool = False
    memory_floor_mib: int = 256
    no_prefix_reuse: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name), field.type)
        if self.max_pending_bytes < self.max_body_bytes:
            raise OptionError(
                f"max_pending_bytes is {self.max_pending_bytes}, less than one body may have "
                f"(max_body_bytes is {self.max_body_bytes}); raise the one or lower the other"
            )
        if self.port > 65535:
            raise OptionError(f"port is {self.port}; it must be from 0 to 65535")
        if self.host not in LOOPBACK and not self.api_keys and not self.insecure:
            raise OptionError(
                f"host {self.host!r} can be reached by others, so set an API key; or say that it is insecure"
            )

    @property
    def api_keys(self) -> tuple[str, ...]:
        return tuple(key.strip() for key in (self.api_key or "").split(",") if key.strip())


_FROM_ZERO = ("port", "max_waiting", "drain", "memory_floor_mib")


def _check(name: str, value: Any, kind: Any) -> None:
    if kind is float and not (_is_number(value) and math.isfinite(value) and (value > 0 or name in _FROM_ZERO)):
        raise OptionError(f"{name} is {value!r}; it must be a number of seconds above 0")
    if kind is int:
        low = 0 if name in _FROM_ZERO else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise OptionError(f"{name} is {value!r}; it must be a whole number of at least {low}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
