"""A model whose linear layers hold int8 weights: made once from its checkpoint, then kept beside the other models.

Knows which layers are replaced and how the result lies on disk; the arithmetic is in kernels/quantize.py. Embeddings
and norms keep their dtype; a head that shares the embedding's weights gets int8 weights of its own.
"""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.initialization import no_init_weights
from transformers.utils.hub import cached_file

from outrider.errors import UnsupportedError
from outrider.files import scratch_beside
from outrider.kernels import NativeLinear, available, native_linear, quantize_rows
from outrider.models import cache_folder

LAYOUT = "1"  # of the files; part of their key
WEIGHTS, COMPLETE = "int8.safetensors", "complete"
CHECKPOINT_FILES = (".safetensors", ".bin", ".gguf", ".json", ".jinja", ".txt", ".model")


def quantize_model(model: Any) -> None:
    """Every nn.Linear of the model, its head too, holds int8 weights afterwards. Raises UnsupportedError."""
    _require_kernels()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, _quantized(child))


def int8_folder(place: Path | str) -> Path:
    """Where the int8 form of this very checkpoint (folder, .gguf file, or hub id) is kept."""
    digest = hashlib.sha256(LAYOUT.encode())
    for path in _checkpoint_files(place):
        facts = path.stat()
        digest.update(f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return cache_folder() / "int8" / f"{Path(str(place)).stem}-{digest.hexdigest()[:16]}"


def read_int8(folder: Path) -> tuple[Any, Any] | None:
    """Model and tokenizer as `write_int8` left them, or None if they are not there; broken files are removed."""
    if not (folder / COMPLETE).is_file():
        return None
    _require_kernels()
    try:
        return _read_folder(folder)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError):
        shutil.rmtree(folder, ignore_errors=True)
        return None


def write_int8(folder: Path, model: Any, tokenizer: Any) -> None:
    """Keep a quantised model for the next load; a disk that is full or read-only only costs time then."""
    with suppress(OSError), scratch_beside(folder) as scratch:  # or somebody else was faster
        model.config.save_pretrained(scratch)
        model.generation_config.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        save_file({name: tensor.contiguous() for name, tensor in _own_tensors(model).items()}, scratch / WEIGHTS)
        (scratch / COMPLETE).touch()
        os.rename(scratch, folder)


def _read_folder(folder: Path) -> tuple[Any, Any]:
    config = AutoConfig.from_pretrained(folder)
    with no_init_weights():  # pages of weights that are replaced are never touched
        model = AutoModelForCausalLM.from_config(config, dtype=config.dtype)
    _fill(model, load_file(folder / WEIGHTS))
    model.generation_config = GenerationConfig.from_pretrained(folder)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def _require_kernels() -> None:
    works, reason = available()
    if not works:
        raise UnsupportedError(f"quantize='int8' needs the native kernels, which are not there: {reason}")


def _quantized(layer: nn.Linear) -> NativeLinear:
    weight, scale = quantize_rows(layer.weight)
    return _native(weight, scale, layer.bias)


def _native(weight: Tensor, scale: Tensor, bias: Tensor | None) -> NativeLinear:
    layer = native_linear(weight, None if bias is None else bias.detach(), scale)
    if layer is None:
        raise UnsupportedError(
            f"quantize='int8': the native kernels cannot hold a layer of shape {tuple(weight.shape)}"
        )
    return layer


def _own_tensors(model: Any) -> dict[str, Tensor]:
    """The model's state, a tensor that appears under two names once."""
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            tensors[name] = tensor
    return tensors


def _fill(model: Any, tensors: dict[str, Tensor]) -> None:
    """Int8 layers where there is a scale, the rest as it is. Raises ValueError if something is left over or missing."""
    for name in [name.removesuffix(".scale") for name in tensors if name.endswith(".scale")]:
        parent, _, child = name.rpartition(".")
        layer = _native(tensors[f"{name}.weight"], tensors[f"{name}.scale"], tensors.get(f"{name}.bias"))
        setattr(model.get_submodule(parent), child, layer)
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=True)
    if missing or unexpected:
        raise ValueError(f"kept int8 weights do not fit the model: {[*missing, *unexpected][0]}")


def _checkpoint_files(place: Path | str) -> list[Path]:
    path = Path(place)
    if path.is_file():
        return [path]
    if not path.is_dir():
        found = cached_file(str(place), "config.json")
        path = Path(str(found)).parent
    return sorted(file for file in path.iterdir() if file.suffix in CHECKPOINT_FILES)
