"""From a name to a target: demo model, folder, .gguf file or hub id. Misfits are refused before weights are read."""

import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging as transformers_logging

from outrider.errors import ModelError, OptionError, did_you_mean
from outrider.files import user_path
from outrider.models import MODELS, cache_folder, readable_gguf
from outrider.targets.base import Exactness
from outrider.targets.hf.facts import choose_max_length, refuse_unsupported
from outrider.targets.hf.generation import generation_defaults
from outrider.targets.hf.gguf import demo_folder, gguf_config, read_gguf, tie_again
from outrider.targets.hf.int8 import int8_folder, quantize_model, read_int8, write_int8
from outrider.targets.hf.target import HFTarget, check_options

WAYS = "give a model's folder, a .gguf file, a hub id or a demo model"
DTYPES = {
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
    "float32": torch.float32,
    "fp32": torch.float32,
    "float64": torch.float64,
}


def load_target(
    name: str,
    *,
    dtype: torch.dtype | str | None = None,
    device: str = "cpu",
    max_rows: int = 8,
    max_length: int | None = None,
    exact: Exactness | None = None,
    quantize: str | None = None,
    ignore_generation_config: bool = False,
) -> HFTarget:
    """The model `name` (demo model, folder, .gguf file or hub id), ready to score.

    dtype: default the checkpoint's (.gguf: bfloat16). max_length: default the model's limit, at most 4,096.
    exact: None: "bitwise" where the test at load confirms it, else "near-tie"; "bitwise": insist, ModelError otherwise;
    "near-tie": do without, which leaves torch's own linear layers in place. quantize: "int8" halves the bytes of the
    linear layers (another model, strictly speaking: docs/quantization.md); made once, then kept on disk. Settings of
    the model's generation_config.json become defaults of every request; one that would change the text and is not
    supported raises UnsupportedError, unless ignore_generation_config leaves out all of them (end tokens stay).
    Raises ModelError, UnsupportedError, OptionError.
    """
    chosen = parse_dtype(dtype)
    check_options(max_rows, exact)
    place = _device(device)
    if quantize is None:
        model, tokenizer = read_model(name, chosen, max_length)
    else:
        _check_quantize(quantize, place, chosen)
        model, tokenizer = _read_int8(name, max_length)
    settings = getattr(model, "generation_config", None)
    defaults = {} if ignore_generation_config or settings is None else generation_defaults(_explicit(settings))
    return HFTarget(
        model.to(place),
        tokenizer,
        name=name,
        max_rows=max_rows,
        max_length=max_length,
        exact=exact,
        quantize=quantize,
        generation_defaults=defaults,
    )


def _check_quantize(quantize: str, place: torch.device, dtype: torch.dtype | None) -> None:
    if quantize != "int8":
        raise OptionError(f"quantize is {quantize!r}; it must be 'int8' or None")
    if place.type != "cpu":
        raise OptionError(f"quantize='int8' is for the CPU, not for {place.type}; leave it out")
    if dtype is not None:
        raise OptionError(f"quantize='int8' and dtype={str(dtype).removeprefix('torch.')!r} exclude each other")


def _read_int8(name: str, max_length: int | None) -> tuple[Any, Any]:
    """The int8 form of a model: as kept on disk, else made now and kept."""
    source = _source(name)
    with _told_as_model_error(name):
        folder = int8_folder(source if source.exists() else name)
        if found := read_int8(folder):
            choose_max_length(found[0].config, max_length)
            return found
    model, tokenizer = read_model(name, None, max_length)
    quantize_model(model)
    write_int8(folder, model, tokenizer)
    return model, tokenizer


@contextmanager
def _told_as_model_error(name: str) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError, struct.error) as error:
        if isinstance(error, (OptionError, NotImplementedError)):
            raise
        raise ModelError(f"cannot load the model {name!r}: {_first_line(error)}{_way_out(name)}") from error


def read_model(name: str, dtype: torch.dtype | None = None, max_length: int | None = None) -> tuple[Any, Any]:
    """transformers' module and tokenizer, on the CPU; the configuration is checked before the weights are read.

    Raises ModelError, UnsupportedError, OptionError.
    """
    transformers_logging.disable_progress_bar()
    source = _source(name)
    with _told_as_model_error(name):
        config = gguf_config(source) if source.suffix == ".gguf" else AutoConfig.from_pretrained(_place(source, name))
        refuse_unsupported(config, _model_class(config))
        choose_max_length(config, max_length)
        if source.suffix == ".gguf":
            return read_gguf(source, dtype)
        return _read_checkpoint(_place(source, name), dtype)


def _read_checkpoint(place: str, dtype: torch.dtype | None) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(place, dtype=dtype or "auto")
    tie_again(model)
    return model, AutoTokenizer.from_pretrained(place)


def _source(name: str) -> Path:
    """A path for what lies on this machine or is a demo model; a hub id comes back as it is. Raises ModelError."""
    path = user_path(name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{name} holds no config.json; {WAYS}")
        return path
    if name in MODELS:
        return demo_folder(name)
    if path.suffix == ".gguf":
        return readable_gguf(path)
    if path.is_file():
        raise ModelError(f"{name} is a file, but no .gguf file; {WAYS}")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelError(f"no model {name!r}: no such folder or file, and no demo model{did_you_mean(name, MODELS)}")
    return path


def _way_out(name: str) -> str:
    """For a demo model: its files were checked when they were fetched, so a bad one was damaged since."""
    if name not in MODELS:
        return ""
    return f"; if its files are damaged, remove {cache_folder() / name}.gguf and {cache_folder() / 'hf' / name}"


def _place(source: Path, name: str) -> str:
    return str(source) if source.exists() else name


def _model_class(config: Any) -> Any:
    """The class that would be built; ModelError if this is no language model."""
    mapping = AutoModelForCausalLM._model_mapping  # pyright: ignore[reportPrivateUsage]
    if type(config) not in mapping.keys():  # noqa: SIM118 (a lazy mapping: only keys() is complete)
        if getattr(config, "is_encoder_decoder", False):
            return None
        raise ModelError(f"{config.model_type} is not a causal language model")
    return mapping[type(config)]


def _explicit(settings: GenerationConfig) -> dict[str, Any]:
    """What the file sets, without what is a library default."""
    return settings.to_diff_dict()


def parse_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """torch's dtype of a name such as "bf16"; None: the checkpoint's. Raises OptionError."""
    if dtype is None or dtype == "auto":
        return None
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise OptionError(f"unknown dtype {dtype!r}{did_you_mean(str(dtype), DTYPES)}")
    return DTYPES[dtype]


def _device(device: str) -> torch.device:
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise OptionError(f"unknown device {device!r}; use 'cpu' or 'cuda'") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device is {device!r}, but torch sees no CUDA device here; use 'cpu'")
    return place


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
