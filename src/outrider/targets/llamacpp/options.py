"""What the llama.cpp backend can be told: threads, sizes, types of its cache. Validated before a model is read."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.errors import OptionError, did_you_mean

CACHE_TYPES = ("f16", "bf16", "f32", "q8_0", "q4_0")
FLASH = ("auto", "on", "off")
MAX_SEQUENCES = 256  # llama.cpp's own limit, rows and branches of trees together


@dataclass(frozen=True)
class LlamaOptions:
    """Options of a llama.cpp context.

    threads: None: as many as torch has, whenever a pass begins. batch_size: most tokens in one pass. cache_type: of
    keys and values; a quantised one needs flash attention. cache_tokens: places of the cache that all rows share, None:
    enough for every row, at most 2 GiB, at least one row. gpu_layers: layers computed on a GPU, -1: all.
    flash_attention: "auto" does without on a processor, where it is slower behind a long text, unless the cache needs
    it, and leaves it to llama.cpp where layers are on a GPU. branches: of the trees of all rows at once, beside each
    row's first.
    """

    threads: int | None = None
    batch_size: int = 512
    cache_type: str = "f16"
    cache_tokens: int | None = None
    gpu_layers: int = 0
    flash_attention: str = "auto"
    branches: int = 128

    @property
    def flash_type(self) -> int:
        """llama.cpp's number for flash_attention: -1 its own choice, 0 without, 1 with."""
        if self.flash_attention == "auto":
            return -1 if self.gpu_layers else int(self.cache_type.startswith("q"))
        return int(self.flash_attention == "on")

    def __post_init__(self) -> None:
        _whole("threads", self.threads, 1, 512, optional=True)
        _whole("batch_size", self.batch_size, 32, 8192)
        _whole("cache_tokens", self.cache_tokens, 32, 1 << 30, optional=True)
        _whole("gpu_layers", self.gpu_layers, -1, 100_000)
        _whole("branches", self.branches, 0, MAX_SEQUENCES - 1)
        _one_of("cache_type", self.cache_type, CACHE_TYPES)
        _one_of("flash_attention", self.flash_attention, FLASH)
        if self.cache_type.startswith("q") and self.flash_attention == "off":
            raise OptionError(f"cache_type {self.cache_type!r} needs flash attention; leave flash_attention on auto")


def llama_options(given: Mapping[str, Any] | str | None) -> LlamaOptions:
    """Options from a mapping or from text such as `threads=2,cache_type=q8_0`. Raises OptionError."""
    values = _parse(given) if isinstance(given, str) else dict(given or {})
    known = [field.name for field in dataclasses.fields(LlamaOptions)]
    for name in values:
        if name not in known:
            raise OptionError(f"the llama.cpp backend has no option {name!r}{did_you_mean(name, known)}")
    return LlamaOptions(**values)


def _parse(text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise OptionError(f"cannot read {part!r} in the backend options {text!r}; write NAME=VALUE,NAME=VALUE")
        values[name.strip()] = _number(value.strip())
    return values


def _number(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _whole(name: str, value: Any, least: int, most: int, *, optional: bool = False) -> None:
    if optional and value is None:
        return
    if type(value) is not int or not least <= value <= most:
        raise OptionError(f"{name} is {value!r}; it must be a whole number from {least} to {most}")


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise OptionError(f"{name} is {value!r}; it must be one of {', '.join(known)}")
