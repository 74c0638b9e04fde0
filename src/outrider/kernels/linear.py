"""A linear layer computed by the native kernel: the weights of nn.Linear, uncopied; rows independent bit for bit.

Knows tensors and their addresses. Each output is one fp32 sum in a fixed order (csrc/gemm.c), so that row i of a pass
has the same bits whatever the number of rows, its place among them, and the number of threads.
"""

import ctypes
import logging

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from outrider.errors import ModelError, OptionError, TargetError, UnsupportedError
from outrider.kernels.library import TYPE_CODES, Library, LinearStruct, load

logger = logging.getLogger("outrider.kernels")

ACTIVATION_CODES = {dtype: TYPE_CODES[dtype] for dtype in (torch.bfloat16, torch.float32)}


def native_linear(
    weight: Float[Tensor, "N K"] | Int8[Tensor, "N K"],
    bias: Float[Tensor, "N"] | None = None,
    scale: Float[Tensor, "N"] | None = None,
) -> "NativeLinear | None":
    """A layer over these very tensors, or None (with the reason logged) where the kernel cannot serve them.

    Served: weight bf16 or fp32, or int8 with an fp32 `scale` per output (y = x @ weight.T * scale + bias, where x is
    rounded to whole numbers row by row, see quantize.py); bias bf16 or fp32; all on CPU, contiguous and not empty.
    Raises OptionError if the shapes do not fit each other.
    """
    _check_shapes(weight, bias, scale)
    library, obstacle = load(), linear_obstacle(weight, bias, scale)
    if library is None or obstacle:
        logger.info("torch serves a %s layer: %s", tuple(weight.shape), obstacle or "no native kernels")
        return None
    return NativeLinear(library, weight, bias, scale)


class NativeLinear(nn.Module):
    """y = x @ weight.T (+ bias) for x (..., K) in bf16 or fp32 on CPU; y (..., N) in x's dtype. Made by native_linear.

    For inference: no gradient is recorded, and an x that asks for one is refused (UnsupportedError). Raises TargetError
    for an x of another size, dtype or device.
    """

    def __init__(self, library: Library, weight: Tensor, bias: Tensor | None, scale: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight = _parameter(weight)
        self.bias = None if bias is None else _parameter(bias)
        self.register_buffer("scale", scale, persistent=True)
        self._function = library.linear
        self._width = torch.Size((self.out_features,))
        self._weight_address, self._struct_address = 0, 0
        self._struct = LinearStruct()

    def forward(self, x: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch N"]:
        """x times the weights; each row's bits depend on that row alone."""
        code, shape, size = ACTIVATION_CODES.get(x.dtype), x.shape, self.in_features
        if code is None or not shape or shape[-1] != size or not x.is_cpu:
            raise TargetError(_misfit(self, x))
        if x.requires_grad and torch.is_grad_enabled():
            raise UnsupportedError("native kernels record no gradient; call the model under torch.inference_mode()")
        x = x.contiguous()
        y = x.new_empty(shape[:-1] + self._width)
        threads = torch.get_num_threads()
        if self._function(self._layer(), x.data_ptr(), x.numel() // size, code, y.data_ptr(), threads):
            raise TargetError(f"no memory for the activations of a pass of shape {tuple(shape)}")
        return y

    def __reduce__(self) -> tuple[object, ...]:
        """Copied and pickled as its tensors: addresses hold only here and now."""
        return _restore, (self.weight, self.bias, self._buffers["scale"])

    def extra_repr(self) -> str:
        """Sizes and type, as nn.Linear shows them."""
        kind = str(self.weight.dtype).removeprefix("torch.")
        return f"in_features={self.in_features}, out_features={self.out_features}, {kind}, bias={self.bias is not None}"

    def _layer(self) -> int:
        """Address of the C struct, rewritten if the weights have moved (`.to`, `load_state_dict(assign=True)`)."""
        weight = self._parameters["weight"]
        if weight is None or weight.data_ptr() != self._weight_address:
            self._describe()
        return self._struct_address

    def _describe(self) -> None:
        weight, bias, scale = self.weight, self.bias, self._buffers["scale"]
        if obstacle := linear_obstacle(weight, bias, scale):
            raise TargetError(f"the layer's weights were changed to what the native kernel cannot read: {obstacle}")
        self._weight_address = weight.data_ptr()
        self._struct = linear_struct(weight, bias, scale)
        self._struct_address = ctypes.addressof(self._struct)


def linear_struct(weight: Tensor, bias: Tensor | None, scale: Tensor | None) -> LinearStruct:
    """The layer as C reads it, by addresses: whoever keeps it keeps the tensors, too."""
    return LinearStruct(
        weight.data_ptr(),
        None if scale is None else scale.data_ptr(),
        None if bias is None else bias.data_ptr(),
        weight.shape[0],
        weight.shape[1],
        TYPE_CODES[weight.dtype],
        TYPE_CODES[torch.float32 if bias is None else bias.dtype],
    )


def _restore(weight: Tensor, bias: Tensor | None, scale: Tensor | None) -> NativeLinear:
    layer = native_linear(weight, bias, scale)
    if layer is None:
        raise ModelError(
            "this layer was saved for the native kernels, and they cannot serve it here; load the model anew"
        )
    return layer


def _parameter(tensor: Tensor) -> nn.Parameter:
    """The same storage as a parameter; one that is a parameter already stays the same object (tied weights)."""
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=False)


def _check_shapes(weight: Tensor, bias: Tensor | None, scale: Tensor | None) -> None:
    if weight.ndim != 2:
        raise OptionError(f"weight has shape {tuple(weight.shape)}; it must be (outputs, inputs)")
    for name, tensor in (("bias", bias), ("scale", scale)):
        if tensor is not None and tensor.shape != weight.shape[:1]:
            raise OptionError(f"{name} has shape {tuple(tensor.shape)}; the weight needs ({weight.shape[0]},)")
    if (scale is not None) != (weight.dtype == torch.int8):
        raise OptionError(f"scale belongs to int8 weights, and only to them; the weight is {weight.dtype}")


def linear_obstacle(weight: Tensor, bias: Tensor | None, scale: Tensor | None) -> str:
    """Why the kernel cannot read these tensors; empty if it can."""
    allowed = {"weight": tuple(TYPE_CODES), "bias": tuple(ACTIVATION_CODES), "scale": (torch.float32,)}
    for name, tensor in (("weight", weight), ("bias", bias), ("scale", scale)):
        if tensor is None:
            continue
        if tensor.dtype not in allowed[name]:
            return f"{name} is {tensor.dtype}"
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return f"{name} is {tensor.layout} on {tensor.device}"
        if not tensor.is_contiguous() or tensor.numel() == 0:
            return f"{name} is empty or not contiguous"
    return ""


def _misfit(layer: NativeLinear, x: Tensor) -> str:
    return (
        f"a native linear layer takes (..., {layer.in_features}) in bf16 or fp32 on cpu, "
        f"not {tuple(x.shape)} in {x.dtype} on {x.device}"
    )
