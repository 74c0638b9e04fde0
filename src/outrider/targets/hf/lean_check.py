"""Does the lean pass say what the model's modules say? Layer by layer, each given the modules' own input.

So the rounding of a bf16 model, which adds up from layer to layer (to 20 % of a logit in a small one), cannot hide a
layer that computes something else: within one layer it is known how much rounding may do.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from outrider.targets.hf.kv_cache import KVCache
from outrider.targets.hf.layout import Pass
from outrider.targets.hf.lean import LeanPass, lean_pass
from outrider.types import Packed

CHANGE, STATE = 25, 2  # roundings allowed of what a layer adds, and of the state that it adds to
UNIT = {torch.bfloat16: 2.0**-8, torch.float32: 2.0**-18}  # fp32: sums of thousands of terms, in another order


def checked_lean_pass(
    model: Any, packed: Packed, cache: KVCache, plain: tuple[Tensor | None, dict[int, Tensor], Pass], max_length: int
) -> LeanPass | str:
    """The lean pass over this model, or the reason why it is not to be used.

    plain: what the modules gave for these nodes (logits, every layer's output, what the attention was asked for).
    """
    logits, outputs, layout = plain
    found = lean_pass(model, layout.settings, max_length)
    if isinstance(found, str):
        return found
    assert logits is not None
    return disagreement(found, model, packed, cache, outputs, logits) or found


def disagreement(
    lean: LeanPass,
    model: Any,
    packed: Packed,
    cache: KVCache,
    outputs: Mapping[int, Float[Tensor, "N H"]],
    logits: Float[Tensor, "N V"],
) -> str:
    """Where the two differ by more than rounding; empty if nowhere.

    outputs, logits: what the modules gave for these nodes, every layer's output among them. The rows of the pass are
    written anew.
    """
    unit = UNIT[model.dtype]
    nodes = torch.arange(packed.num_nodes)
    before = model.get_input_embeddings()(packed.tokens).float()
    for layer in range(len(outputs)):
        theirs = outputs[layer].float()
        _, ours = lean.advance(before.clone(), packed, cache, None, (layer,), [layer])
        allowed = unit * (CHANGE * (theirs - before).norm(dim=1) + STATE * theirs.norm(dim=1))
        if not bool(((ours[layer] - theirs).norm(dim=1) <= allowed).all()):
            return f"layer {layer} says something else than the model's own"
        before = theirs
    final, _ = lean.advance(before, packed, cache, nodes, (), [])
    assert final is not None
    error = (lean.logits(model, final) - logits.float()).norm(dim=1)
    return "" if bool((error <= unit * CHANGE * logits.float().norm(dim=1)).all()) else "the logits are others"
