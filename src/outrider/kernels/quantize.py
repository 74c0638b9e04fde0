"""int8 weights with one scale per output, and the whole numbers that activations become when they meet such weights.

Symmetric, rounded to nearest, ties to even: weight[n, k] is about int8[n, k] * scale[n], with an error of at most
scale[n] / 2. An activation row becomes int16 numbers times one scale of its own, with as many levels as a 32-bit sum
of products can hold: 32,767 for up to 133 inputs, 11,008 for 1,536, 1,887 for 8,960. Sums of products are whole numbers
and exact, so they are the same in every order, and a row's result depends on no other row. Source of the scheme:
LLM.int8() (Dettmers et al. 2022), section 2.1, vector-wise quantization, here with finer activations.
"""

import torch
from jaxtyping import Float, Float32, Int8, Int16
from torch import Tensor


def quantize_rows(weight: Float[Tensor, "N K"]) -> tuple[Int8[Tensor, "N K"], Float32[Tensor, "N"]]:
    """The int8 weights and their scales; a row of zeros gets the scale 1."""
    rows = weight.detach().float()
    scale = rows.abs().amax(dim=1) / 127
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (rows / scale[:, None]).round_().clamp_(-127, 127).to(torch.int8), scale


def activation_levels(size: int) -> int:
    """The largest whole number that one of `size` activations may become."""
    return min(32767, (2**31 - 1) // (127 * size))


def quantize_activations(x: Float[Tensor, "*batch K"]) -> tuple[Int16[Tensor, "*batch K"], Float32[Tensor, "*batch"]]:
    """What the native product makes of activations (csrc/pack.h). A row with a NaN or an infinity has the scale NaN."""
    rows, levels = x.detach().float(), activation_levels(x.shape[-1])
    most = rows.abs().amax(dim=-1)
    factor = torch.full_like(most, levels) / most
    whole = (rows * factor[..., None]).round_()
    empty = ~(most > 0) | ~most.isfinite() | factor.isinf()
    scale = torch.where(empty, torch.where(most.isfinite(), 0.0, float("nan")), most / levels)
    return torch.where(empty[..., None], 0, whole).to(torch.int16), scale
