"""int8 weights with one scale per output: the half of bf16's bytes, for drafters and for targets that say so.

Symmetric, rounded to nearest: weight[n, k] is about int8[n, k] * scale[n], with an error of at most scale[n] / 2.
"""

import torch
from jaxtyping import Float, Float32, Int8
from torch import Tensor


def quantize_rows(weight: Float[Tensor, "N K"]) -> tuple[Int8[Tensor, "N K"], Float32[Tensor, "N"]]:
    """The int8 weights and their scales; a row of zeros gets the scale 1."""
    rows = weight.detach().float()
    scale = rows.abs().amax(dim=1) / 127
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (rows / scale[:, None]).round_().clamp_(-127, 127).to(torch.int8), scale
