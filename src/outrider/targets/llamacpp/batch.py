"""A llama_batch over arrays of our own, filled anew for every pass and never allocated again.

Packed as llama.cpp wants it: token, position, the sequences that a token belongs to, and whether its logits are wanted.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np


class Batch:
    """Room for `capacity` tokens."""

    def __init__(self, native: Any, capacity: int) -> None:
        self.capacity = capacity
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._counts = np.ones(capacity, np.int32)
        self._wanted = np.zeros(capacity, np.int8)
        self._addresses = np.zeros(capacity + 1, np.uint64)
        self._own = np.zeros(capacity, np.int32)  # the sequences, where every token belongs to one
        self._own_places = self._own.ctypes.data + 4 * np.arange(capacity, dtype=np.uint64)
        self._sequences = self._own
        self._batch = native.llama_batch(
            n_tokens=0,
            token=_pointer(self._tokens, native.llama_token),
            embd=None,
            pos=_pointer(self._positions, native.llama_pos),
            n_seq_id=_pointer(self._counts, ctypes.c_int32),
            seq_id=_pointer(self._addresses, ctypes.POINTER(native.llama_seq_id)),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )

    def fill(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[Sequence[int]],
        wanted: bool | Sequence[bool],
    ) -> Any:
        """The batch of these tokens. sequences[i]: those that token i belongs to. wanted: whose logits are answered."""
        size = len(tokens)
        self._tokens[:size] = tokens
        self._positions[:size] = positions
        self._wanted[:size] = wanted
        self._batch.n_tokens = size
        ids = [one for ids in sequences for one in ids]
        if len(ids) == size:
            self._own[:size], self._counts[:size], self._addresses[:size] = ids, 1, self._own_places[:size]
        else:
            self._share(ids, [len(ids) for ids in sequences])
        return self._batch

    def _share(self, ids: list[int], counts: list[int]) -> None:
        """Tokens that belong to several sequences, one after another in `ids`."""
        self._sequences = np.array(ids, np.int32)  # kept: the addresses point into it
        self._counts[: len(counts)] = counts
        self._addresses[: len(counts)] = self._sequences.ctypes.data + 4 * (np.cumsum(counts) - counts)


def _pointer(array: "np.ndarray[Any, Any]", kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
