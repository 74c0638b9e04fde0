"""A loaded model with its cache: what llama.cpp allocated, freed with the object."""

import ctypes
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outrider.errors import ModelError
from outrider.targets.llamacpp.facts import ModelFacts
from outrider.targets.llamacpp.library import log
from outrider.targets.llamacpp.options import LlamaOptions


class Context:
    """A context of `num_sequences` sequences that share `num_cells` places. Raises ModelError if memory is short."""

    def __init__(
        self, native: Any, model: Any, facts: ModelFacts, options: LlamaOptions, num_sequences: int, num_cells: int
    ) -> None:
        self.native = native
        self.facts = facts
        self.options = options
        self.num_sequences = num_sequences
        self._threads = options.threads or torch.get_num_threads()
        self.pointer = _create(native, model, self._settings(num_cells))
        self.num_cells: int = native.llama_n_ctx(self.pointer)
        self._seen, self._view = (0, 0), torch.empty(0)
        weakref.finalize(self, _release, native, self.pointer, model)

    def follow_threads(self) -> None:
        """Where threads were not asked for, use as many as torch does now."""
        if self.options.threads is None and (now := torch.get_num_threads()) != self._threads:
            self.native.llama_set_n_threads(self.pointer, now, now)
            self._threads = now

    def logits(self, num_rows: int) -> Tensor:
        """The last pass's answers (num_rows, columns of the model), which the next pass overwrites."""
        address = ctypes.addressof(self.native.llama_get_logits(self.pointer).contents)
        if self._seen != (address, num_rows):  # llama.cpp keeps its place for answers until it must grow
            self._seen, self._view = (address, num_rows), self._tensor(address, num_rows)
        return self._view

    def _tensor(self, address: int, num_rows: int) -> Tensor:
        size = num_rows * self.facts.num_columns
        values = np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))
        return torch.from_numpy(values).view(num_rows, self.facts.num_columns)

    def _settings(self, num_cells: int) -> Any:
        native, options = self.native, self.options
        settings = native.llama_context_default_params()
        settings.n_ctx = num_cells
        settings.n_batch = settings.n_ubatch = options.batch_size
        settings.n_seq_max = self.num_sequences
        settings.n_outputs_max = max(options.batch_size, self.num_sequences)  # fewer than sequences end the process
        settings.n_threads = settings.n_threads_batch = self._threads
        settings.flash_attn_type = options.flash_type
        settings.type_k = settings.type_v = getattr(native, f"GGML_TYPE_{options.cache_type.upper()}")
        settings.kv_unified = True  # branches share cells
        settings.swa_full = True  # a window's older tokens are needed again after a roll-back
        settings.no_perf = True
        return settings


def _create(native: Any, model: Any, settings: Any) -> Any:
    log(native).forget()
    pointer = native.llama_init_from_model(model, settings)
    if not pointer:
        native.llama_model_free(model)
        raise ModelError(
            f"llama.cpp made no context of {settings.n_ctx} places: {log(native).reason()}; "
            "lower max_rows, max_length or the backend option cache_tokens"
        )
    return pointer


def _release(native: Any, pointer: Any, model: Any) -> None:
    native.llama_free(pointer)
    native.llama_model_free(model)
