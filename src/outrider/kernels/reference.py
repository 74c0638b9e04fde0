"""The slow twin of the native product: the same sums in float64, for tests and for the speed table's error column."""

from jaxtyping import Float, Float64, Int8
from torch import Tensor


def linear_reference(
    x: Float[Tensor, "*batch K"],
    weight: Float[Tensor, "N K"] | Int8[Tensor, "N K"],
    bias: Float[Tensor, "N"] | None = None,
    scale: Float[Tensor, "N"] | None = None,
) -> Float64[Tensor, "*batch N"]:
    """x @ weight.T, times scale, plus bias, all in float64 and unrounded."""
    y = x.double() @ weight.double().T
    if scale is not None:
        y = y * scale.double()
    return y if bias is None else y + bias.double()
