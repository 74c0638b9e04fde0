"""A model whose language-model head has some of its rows only: what a draft model with a short vocabulary saves."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from outrider.errors import OptionError
from outrider.kernels import native_linear
from outrider.targets.hf.linear import row_linear


def with_head_rows(model: Any, ids: Sequence[int]) -> Any:
    """The same model, all modules shared, with another head: output i of it is output ids[i] of the old one.

    The old head is neither changed nor copied but for these rows. Raises OptionError for a row that is not there.
    """
    head = model.get_output_embeddings()
    rows = torch.tensor(ids, dtype=torch.long, device=model.device)
    if not ids or not 0 <= int(rows.min()) <= int(rows.max()) < head.out_features:
        raise OptionError(
            f"the head of {model.config.model_type} has rows 0 to {head.out_features - 1}, not all asked for"
        )
    twin = copy.copy(model)
    vars(twin)["_modules"] = dict(model._modules)
    twin.set_output_embeddings(_cut(head, rows))
    return twin


def _cut(head: nn.Module, rows: Tensor) -> nn.Module:
    weight, bias, scale = (_part(getattr(head, name, None), rows) for name in ("weight", "bias", "scale"))
    assert weight is not None
    if scale is not None:  # integer weights: only the native kernel computes these
        cut = native_linear(weight, bias, scale)
        assert cut is not None
        return cut
    return row_linear(weight, bias)


def _part(tensor: Tensor | None, rows: Tensor) -> Tensor | None:
    if tensor is None:
        return None
    plain = tensor.detach().to_dense() if tensor.is_mkldnn else tensor.detach()
    return plain[rows].contiguous()
