"""GGUF files: read into plain weights, and kept as safetensors so that the next load takes seconds."""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

from outrider.files import scratch_beside
from outrider.models import cache_folder, pull

LAST_WRITTEN = "tokenizer_config.json"


def read_gguf(path: Path, dtype: torch.dtype | None) -> tuple[Any, Any]:
    """Model and tokenizer of a .gguf file; dtype None: bfloat16, whatever the file's quantisation."""
    options = {"gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(path.parent, **options)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, dtype=dtype or torch.bfloat16, quantization_config=GgufConfig(dequantize=True), **options
    )
    tie_again(model)
    return model, tokenizer


def gguf_config(path: Path) -> Any:
    """The model's configuration, without reading weights."""
    return AutoConfig.from_pretrained(path.parent, gguf_file=path.name)


def tie_again(model: Any) -> None:
    """One tensor for embedding and LM head where they are equal; GGUF files of some tied models come with two."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is None or head.weight is embedding.weight or not torch.equal(head.weight, embedding.weight):
        return
    head.weight = embedding.weight
    model.config.tie_word_embeddings = True


def demo_folder(name: str) -> Path:
    """A demo model as a folder of bfloat16 safetensors with its tokenizer, fetched and converted if need be.

    Where the folder cannot be written, it is the .gguf file, which serves as well and loads more slowly.
    """
    folder = cache_folder() / "hf" / name
    if (folder / LAST_WRITTEN).is_file() and (folder / "model.safetensors").is_file():
        return folder
    source = pull(name)
    try:
        with scratch_beside(folder) as scratch:
            model, tokenizer = read_gguf(source, torch.bfloat16)
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
            _put_in_place(scratch, folder)
    except (OSError, SafetensorError):  # no space left, say
        return source
    return folder


def _put_in_place(scratch: Path, folder: Path) -> None:
    """Rename, unless somebody else was faster; a broken earlier folder gives way."""
    try:
        os.rename(scratch, folder)
    except OSError:
        if (folder / LAST_WRITTEN).is_file() and (folder / "model.safetensors").is_file():
            return
        shutil.rmtree(folder)
        os.rename(scratch, folder)
