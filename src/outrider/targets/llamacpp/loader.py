"""From a GGUF file, or a demo model's name, to a target scored by llama.cpp."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.errors import ModelError, OptionError, did_you_mean
from outrider.files import user_path
from outrider.models import MODELS, pull, readable_gguf
from outrider.targets.base import Exactness, TargetInfo
from outrider.targets.llamacpp.context import Context
from outrider.targets.llamacpp.facts import (
    ModelFacts,
    choose_cache_tokens,
    choose_max_length,
    read_facts,
    refuse_unsupported,
    sampling_defaults,
)
from outrider.targets.llamacpp.library import check_runs, library, log
from outrider.targets.llamacpp.options import MAX_SEQUENCES, LlamaOptions, llama_options
from outrider.targets.llamacpp.target import LlamaTarget
from outrider.targets.llamacpp.tokenizer import LlamaTokenizer

UNIT = 1 / 127  # activations are rounded to 8 bits before every product


def load_llamacpp(
    name: str,
    *,
    max_rows: int = 8,
    max_length: int | None = None,
    exact: Exactness | None = None,
    options: Mapping[str, Any] | str | None = None,
    ignore_generation_config: bool = False,
) -> LlamaTarget:
    """The model `name` (a .gguf file or a demo model), ready to score. options: see `LlamaOptions`.

    max_length: default the model's limit, at most 4,096. exact: "bitwise" insists on passes whose width changes no bit,
    which most models do not have here; default: near-tie. Sampling settings in the file become defaults of every
    request, unless ignore_generation_config. Raises ModelError, UnsupportedError, OptionError.
    """
    chosen = llama_options(options)
    _check(max_rows, exact)
    native = library()
    path = gguf_path(name)
    check_runs(path)
    model = _read(native, path, chosen)
    try:
        refuse_unsupported(native, model, name)
        facts = read_facts(native, model)
        length = choose_max_length(facts, max_length)
        cells = choose_cache_tokens(facts, chosen.cache_tokens, max_rows, length, chosen.batch_size)
        defaults = {} if ignore_generation_config else sampling_defaults(native, model)
        tokenizer = LlamaTokenizer(native, model, name)
    except BaseException:
        native.llama_model_free(model)
        raise
    context = Context(native, model, facts, chosen, min(MAX_SEQUENCES, max_rows + chosen.branches), cells)
    return LlamaTarget(context, _info(name, facts, max_rows, length, defaults), tokenizer, exact)


def gguf_path(name: str) -> Path:
    """The file that a demo model's name or a path means, fetched if need be. Raises ModelError."""
    if name in MODELS:
        return pull(name)
    path = user_path(name)
    if path.suffix != ".gguf":
        raise ModelError(f"llama.cpp reads .gguf files and demo models, not {name!r}{did_you_mean(name, MODELS)}")
    return readable_gguf(path)


def _read(native: Any, path: Path, options: LlamaOptions) -> Any:
    settings = native.llama_model_default_params()
    settings.n_gpu_layers = options.gpu_layers
    log(native).forget()
    model = native.llama_model_load_from_file(str(path).encode(), settings)
    if not model:
        raise ModelError(f"llama.cpp cannot read {path}: {log(native).reason()}")
    if options.gpu_layers and not native.llama_supports_gpu_offload():
        native.llama_model_free(model)
        raise OptionError(f"gpu_layers is {options.gpu_layers}, but this build of llama.cpp has no GPU support; use 0")
    return model


def _check(max_rows: int, exact: str | None) -> None:
    if type(max_rows) is not int or not 1 <= max_rows <= MAX_SEQUENCES:
        raise OptionError(f"max_rows is {max_rows!r}; llama.cpp takes a whole number from 1 to {MAX_SEQUENCES}")
    if exact not in (None, "bitwise", "near-tie"):
        raise OptionError(f"exact is {exact!r}; it must be 'bitwise', 'near-tie' or None")


def _info(name: str, facts: ModelFacts, max_rows: int, max_length: int, defaults: Mapping[str, Any]) -> TargetInfo:
    return TargetInfo(
        name=name,
        vocab_size=facts.vocab_size,
        max_length=max_length,
        max_rows=max_rows,
        eos_token_ids=facts.end_token_ids,
        generation_defaults=dict(defaults),
        rounding_unit=UNIT,
    )
