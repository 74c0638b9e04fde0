"""Noise that is a function, not a state: every number follows from (seed, round, position, stream, index).

The key is mixed from those parts; the numbers of one key are the outputs of SplitMix64 (Steele, Lea & Flood 2014)
started at that key, and the token id is the counter, so that any single number can be had without the others. No
generator of torch or numpy is touched, no request sees another's numbers, and a token's noise depends neither on the
drafter nor on the batch. Integers are the same on every device; the logarithm may differ in its last bit between a
CPU and a GPU.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Float64, Int
from torch import Tensor

Stream = Literal["token", "draft", "accept", "recover"]
"""token: the target's own choice. draft: a drafter's private draws. accept: uniforms. recover: residual draws."""

_STREAM_CODES: dict[Stream, int] = {"token": 1, "draft": 2, "accept": 3, "recover": 4}
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


@dataclass(frozen=True)
class Noise:
    """All the randomness of one request in one round.

    round None: numbers are keyed by (seed, position) alone, which is what `identical` needs; a rule whose decisions
    look at later draft tokens must not meet the same numbers again in the next round, so it is keyed by the round too.
    seed, round, position, index: any integers >= 0 (taken modulo 2**64).
    """

    seed: int
    round: int | None = None

    def gumbel(
        self, position: int, vocab_size: int, *, stream: Stream = "token", device: torch.device | str = "cpu"
    ) -> Float64[Tensor, "V"]:
        """Standard Gumbel noise for every token id at this position."""
        steps = _all_steps(vocab_size, str(device))
        return _to_gumbel(_splitmix(steps + _signed(self._key(position, stream))))

    def gumbel_at(self, position: int, ids: Int[Tensor, "K"], *, stream: Stream = "token") -> Float64[Tensor, "K"]:
        """The same as gumbel(...)[ids], bit for bit, computed for these ids only."""
        steps = (ids.long() + 1) * _signed(_GOLDEN)
        return _to_gumbel(_splitmix(steps + _signed(self._key(position, stream))))

    def uniform(self, position: int, stream: Stream, index: int = 0) -> float:
        """A number in [0, 1) with 53 random bits."""
        word = mix64(self._key(position, stream) + index * _GOLDEN)
        return (word >> 11) * 2.0**-53

    def _key(self, position: int, stream: Stream) -> int:
        key = 0
        for part in (self.seed, 0 if self.round is None else self.round + 1, position, _STREAM_CODES[stream]):
            key = mix64(key ^ (part & _MASK))
        return key


def mix64(state: int) -> int:
    """SplitMix64's next output from this state, an unsigned 64-bit integer."""
    z = (state + _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


def _splitmix(z: Tensor) -> Tensor:
    """mix64's finaliser on int64 tensors: products wrap, and a shift is made logical by masking the sign's copies."""
    z = (z ^ _shift(z, 30)).mul_(_signed(_FIRST))
    z = (z ^ _shift(z, 27)).mul_(_signed(_SECOND))
    return z ^ _shift(z, 31)


def _shift(z: Tensor, count: int) -> Tensor:
    return (z >> count).bitwise_and_((1 << (64 - count)) - 1)


def _to_gumbel(words: Tensor) -> Tensor:
    """-log(-log(u)), u the middle of one of 2**52 equal cells of (0, 1): never 0 or 1, so always finite."""
    uniforms = _shift(words, 12).double().add_(0.5).mul_(2.0**-52)
    return uniforms.log_().neg_().log_().neg_()


@lru_cache(maxsize=8)
def _all_steps(vocab_size: int, device: str) -> Tensor:
    """(id + 1) * golden ratio for every id; constants, so kept."""
    return torch.arange(1, vocab_size + 1, dtype=torch.int64, device=device) * _signed(_GOLDEN)


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value
