"""The slow twin of the native product: the same sums in float64, for tests and for the speed table's error column."""

from jaxtyping import Float, Float64, Int8
from torch import Tensor

from outrider.kernels.quantize import quantize_activations


def linear_reference(
    x: Float[Tensor, "*batch K"],
    weight: Float[Tensor, "N K"] | Int8[Tensor, "N K"],
    bias: Float[Tensor, "N"] | None = None,
    scale: Float[Tensor, "N"] | None = None,
) -> Float64[Tensor, "*batch N"]:
    """x @ weight.T plus bias, in float64 and unrounded; with a scale, of x's whole numbers, times both scales."""
    if scale is None:
        y = x.double() @ weight.double().T
    else:
        whole, x_scale = quantize_activations(x)
        y = whole.double() @ weight.double().T * (x_scale.double()[..., None] * scale.double())
    return y if bias is None else y + bias.double()
