"""Linear layers and activations whose rows do not depend on how many rows share the call. One place decides which.

By dtype on a CPU (each confirmed by the test at load, exact.py):
- our own kernel, where there is a compiler and the kernel takes the weight;
- float32: oneDNN's prepacked product (the unpacked one chooses kernels by the number of rows);
- bfloat16, float16: torch's product; with AMX a single row goes through another kernel, so it is computed twice;
- else (float64): torch's product on a number of rows rounded up to 16.
Element-wise activations compute the end of a memory block with other instructions than the rest, with other last bits;
they are therefore given whole vectors, in pieces that torch does not split among threads.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outrider.kernels import native_linear

ROWS = 16  # float64: rows are rounded up to this
VECTOR = 64  # elements; a multiple of every vector loop's step, AVX-512 and bfloat16 included
GRAIN = 32768  # elements; torch keeps smaller element-wise work on one thread


def make_row_independent(model: nn.Module) -> None:
    """Swap the model's linear layers (GPT-2's Conv1D too) and activations for row-independent ones, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if (swapped := _swap(child)) is not child:
                setattr(parent, name, swapped)


def _swap(module: nn.Module) -> nn.Module:
    if type(module) is nn.Linear:
        return row_linear(module.weight, module.bias, module)
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        return row_linear(cast(Tensor, module.weight).t().contiguous(), cast(Tensor, module.bias))
    return RowwiseActivation(module) if _is_elementwise(module) else module


def _is_elementwise(module: nn.Module) -> bool:
    homes = ("transformers.activations", "torch.nn.modules.activation")
    mixing = (nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.GLU, nn.MultiheadAttention)
    return type(module).__module__ in homes and not isinstance(module, mixing) and not list(module.parameters())


def row_linear(weight: Tensor, bias: Tensor | None, original: nn.Linear | None = None) -> nn.Module:
    """The best row-independent product for this weight (out, in). original: returned where torch's own will do."""
    if weight.device.type != "cpu":
        return original or _plain(weight, bias)
    if (native := _native(weight, bias)) is not None:
        return native
    if weight.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        return PackedLinear(weight, bias)
    if weight.dtype in (torch.bfloat16, torch.float16):
        return DoubledLinear(weight, bias) if _has_amx() else original or _plain(weight, bias)
    return PaddedLinear(weight, bias)


def _native(weight: Tensor, bias: Tensor | None) -> nn.Module | None:
    return native_linear(weight.detach(), None if bias is None else bias.detach())


def _has_amx() -> bool:
    return bool(torch.cpu._is_amx_tile_supported())  # pyright: ignore[reportPrivateUsage]


def _plain(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


class _RowLinear(nn.Module):
    """weight (out, in), bias (out,) or None; shapes as in nn.Linear."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight = weight.detach()
        self.bias = None if bias is None else bias.detach()

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.reshape(-1, self.in_features)
        return self.product(rows).view(*inputs.shape[:-1], self.out_features)

    def product(self, rows: Tensor) -> Tensor:
        """(n, in) -> (n, out)."""
        raise NotImplementedError


class PackedLinear(_RowLinear):
    """oneDNN's product on a weight laid out once for any number of rows (float32)."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)

    def product(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows.contiguous(), self.weight, self.bias, "none", [], "")


class DoubledLinear(_RowLinear):
    """torch's product, a single row computed as two equal ones (AMX)."""

    def product(self, rows: Tensor) -> Tensor:
        if rows.shape[0] == 1:
            return F.linear(rows.expand(2, -1).contiguous(), self.weight, self.bias)[:1]
        return F.linear(rows, self.weight, self.bias)


class PaddedLinear(_RowLinear):
    """torch's product on a number of rows rounded up to a multiple of 16."""

    def product(self, rows: Tensor) -> Tensor:
        missing = -rows.shape[0] % ROWS
        return F.linear(F.pad(rows, (0, 0, 0, missing)), self.weight, self.bias)[: rows.shape[0]]


class RowwiseActivation(nn.Module):
    """An element-wise function applied in whole vectors, never split among threads at an odd place."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        width = inputs.shape[-1]
        if width % VECTOR == 0 and _splits_evenly(inputs.numel()):
            return self.function(inputs)
        padded = F.pad(inputs, (0, -width % VECTOR))
        whole = torch.cat([self.function(piece) for piece in padded.flatten().split(GRAIN)])
        return whole.view(padded.shape)[..., :width].contiguous()


def _splits_evenly(numel: int) -> bool:
    threads = torch.get_num_threads()
    return numel < GRAIN or threads == 1 or (numel >= threads * GRAIN and numel % (threads * VECTOR) == 0)
