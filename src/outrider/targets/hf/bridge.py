"""The only file that touches transformers' attention and cache interface (checked with 5.24).

A model is told to use the attention named "outrider" and is called without a cache; our `Pass` travels as a keyword
argument to the attention function of every layer. transformers' own mask functions only tell which window a layer has.
Whatever a layer asks for that is not handled here is refused by name, never ignored.
"""

from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import causal_mask_function

from outrider.errors import UnsupportedError
from outrider.targets.hf.layout import Pass, Settings

ATTENTION_NAME = "outrider"
HARMLESS = frozenset(
    {"position_ids", "use_cache", "output_attentions", "output_hidden_states", "return_dict", "position_embeddings"}
)


@dataclass(frozen=True)
class MaskNote:
    """What transformers would have masked: everything later, and all beyond the window, if there is one."""

    window: int | None


def take_over(model: PreTrainedModel) -> None:
    """From now on the model's attention layers are ours. Raises UnsupportedError where they cannot be."""
    AttentionInterface.register(ATTENTION_NAME, _attention)
    AttentionMaskInterface.register(ATTENTION_NAME, _note_mask)
    model.set_attn_implementation(ATTENTION_NAME)
    if model.config._attn_implementation != ATTENTION_NAME:  # pyright: ignore[reportPrivateUsage]
        raise UnsupportedError(f"{model.config.model_type} does not let its attention be replaced")


def run_model(
    model: PreTrainedModel, tokens: Tensor, positions: Tensor, layout: Pass, want: Tensor | None
) -> Tensor | None:
    """One pass over packed nodes; logits (M, rows of the LM head) of the wanted nodes, or None if none are wanted."""
    inputs = {"input_ids": tokens[None], "position_ids": positions[None], "use_cache": False, "outrider_pass": layout}
    if want is None:
        model.base_model(**inputs)
        return None
    return model(**inputs, logits_to_keep=want).logits[0]


def _note_mask(
    mask_function: Any = causal_mask_function, local_size: int | None = None, use_vmap: bool = False, **_: Any
) -> MaskNote:
    if use_vmap:
        raise UnsupportedError(f"the model builds its own mask ({mask_function}), which cannot be combined with trees")
    return MaskNote(local_size)


def _attention(
    module: nn.Module,
    query: Tensor,  # (1, H, N, HD)
    key: Tensor,  # (1, KH, N, HD)
    value: Tensor,
    attention_mask: MaskNote | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    outrider_pass: Pass | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """transformers' calling convention on one side, cache rows on the other. Returns (1, N, H, HD)."""
    if outrider_pass is None:
        raise UnsupportedError(f"{type(module).__name__} does not hand keyword arguments to its attention function")
    _refuse_unknown(module, query, value, dropout, is_causal, others)
    window = _window(module, attention_mask, sliding_window)
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    settings = Settings(window, scale, softcap)
    queries, keys, values = (states[0].transpose(0, 1) for states in (query, key, value))
    layer = cast(int, module.layer_idx)
    return outrider_pass.attend(layer, queries, keys, values, settings)[None].to(query.dtype), None


def _window(module: nn.Module, note: MaskNote | None, sliding_window: int | None) -> int | None:
    """The layer's window: what transformers' mask says. A layer that says otherwise is refused."""
    if not isinstance(note, MaskNote):
        raise UnsupportedError(f"{type(module).__name__} uses a mask of its own, which cannot be combined with trees")
    if sliding_window is not None and note.window != sliding_window:
        raise UnsupportedError(
            f"{type(module).__name__} names a sliding window of {sliding_window}, its mask one of {note.window}"
        )
    return note.window


def _refuse_unknown(
    module: nn.Module, query: Tensor, value: Tensor, dropout: float, is_causal: bool | None, others: dict[str, Any]
) -> None:
    unknown = [name for name, given in others.items() if name not in HARMLESS and given is not None]
    if unknown:
        raise UnsupportedError(f"{type(module).__name__} asks its attention for {unknown[0]!r}, which is not supported")
    if dropout or is_causal is False or getattr(module, "is_causal", True) is False:
        raise UnsupportedError(f"{type(module).__name__} is not plain causal attention at inference")
    if value.shape[-1] != query.shape[-1]:
        raise UnsupportedError(f"{type(module).__name__} has values of another size than its keys (latent attention)")
