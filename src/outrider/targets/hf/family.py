"""Reads a decoder of the Llama family out of its modules, or says what about it is not known.

Known are Llama, Mistral, Qwen2, Qwen3 and Gemma 3 (text) as transformers writes them (checked with 5.24): a model is
one only if every module below it is of that file's own class or one that we put there, has no hook and no replaced
forward, and if its layers asked the attention for nothing but a window and a scale. Whatever differs is a reason for
the plain pass, never guessed at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from outrider.kernels import NativeLinear
from outrider.kernels.decoder import DecoderLayer, DecoderShape, LinearWeights
from outrider.targets.hf.layout import Settings
from outrider.targets.hf.linear import RowwiseActivation

FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma3"}
ACTIVATIONS = {
    "SiLU": "silu",
    "SiLUActivation": "silu",
    "GELUTanh": "gelu_tanh",
    "PytorchGELUTanh": "gelu_tanh",
}
BRANCHES = {"self_attn": "Attention", "mlp": "MLP"}
NORMS = {"input_layernorm", "post_attention_layernorm"}
SANDWICH_NORMS = NORMS | {"pre_feedforward_layernorm", "post_feedforward_layernorm"}
PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj"}
HEAD_NORMS = {"q_norm", "k_norm"}
MLP_PARTS = {"gate_proj", "up_proj", "down_proj", "act_fn"}
BASE_PARTS = {"embed_tokens", "layers", "norm", "rotary_emb"}


class NotKnown(Exception):
    """This model is not of the family; the message says what about it differs. Never leaves this package."""


@dataclass(frozen=True, eq=False)
class Decoder:
    """What was read. rope_kinds: per table of rotations, what the rotary module wants to be told besides positions."""

    shape: DecoderShape
    layers: list[DecoderLayer]
    final_norm: Tensor
    rope_kinds: tuple[tuple[str, ...], ...]
    logit_cap: float | None


def read_decoder(model: Any, settings: Sequence[Settings]) -> Decoder:
    """The model's layers. settings: what each layer asked its attention for in a pass. Raises NotKnown."""
    reader = _Reader(*_family(model))
    base = model.base_model
    reader.expect(base, {f"{reader.prefix}Model", f"{reader.prefix}TextModel"}, BASE_PARTS)
    reader.expect(base.embed_tokens, {"Embedding", f"{reader.prefix}TextScaledWordEmbedding"}, set())
    kinds = sorted({reader.rope_kind(layer) for layer in base.layers})
    layers = [reader.layer(*pair, kinds) for pair in zip(base.layers, settings, strict=True)]
    cap = model.config.final_logit_softcapping if reader.prefix == "Gemma3" else None
    final_norm = reader.norm(base.norm)
    return Decoder(reader.shape(model.config, base.layers[0]), layers, final_norm, tuple(kinds), cap)


def _family(model: Any) -> tuple[str, str]:
    for name, prefix in FAMILIES.items():
        home = f"transformers.models.{name}.modeling_{name}"
        if (type(model).__module__, type(model).__name__) == (home, f"{prefix}ForCausalLM"):
            return prefix, home
    raise NotKnown(f"{type(model).__name__} is not of the known family")


class _Reader:
    """Goes through one model's modules. prefix: of its class names; home: the module that they live in."""

    def __init__(self, prefix: str, home: str) -> None:
        self.prefix, self.home = prefix, home
        self._epsilons: set[float] = set()
        self._activations: set[str] = set()

    def expect(self, module: nn.Module, names: set[str], children: set[str]) -> None:
        """The module is what its class says, and nothing was put into it."""
        kind = type(module)
        own = kind.__module__ == self.home or kind.__module__.startswith("torch.nn.modules.")
        if not own or kind.__name__ not in names:
            raise NotKnown(f"{kind.__module__}.{kind.__name__} is in the place of {min(names)}")
        if {name for name, _ in module.named_children()} != children:
            raise NotKnown(f"{kind.__name__} has other parts than usual")
        _unchanged(module)

    def rope_kind(self, layer: Any) -> tuple[str, ...]:
        return (layer.self_attn.layer_type,) if self.prefix == "Gemma3" else ()

    def layer(self, layer: Any, settings: Settings, rope_kinds: list[tuple[str, ...]]) -> DecoderLayer:
        sandwich, heads = self.prefix == "Gemma3", self.prefix in ("Gemma3", "Qwen3")
        self.expect(layer, {f"{self.prefix}DecoderLayer"}, {*BRANCHES, *(SANDWICH_NORMS if sandwich else NORMS)})
        attention, mlp = layer.self_attn, layer.mlp
        self.expect(attention, {f"{self.prefix}Attention"}, PROJECTIONS | (HEAD_NORMS if heads else set()))
        self.expect(mlp, {f"{self.prefix}MLP"}, MLP_PARTS)
        self._activations.add(_activation(mlp.act_fn))
        if settings.softcap is not None:
            raise NotKnown("its attention scores are soft-capped")
        before_mlp = layer.pre_feedforward_layernorm if sandwich else layer.post_attention_layernorm
        return DecoderLayer(
            query=_weights(attention.q_proj),
            key=_weights(attention.k_proj),
            value=_weights(attention.v_proj),
            output=_weights(attention.o_proj),
            gate=_weights(mlp.gate_proj),
            up=_weights(mlp.up_proj),
            down=_weights(mlp.down_proj),
            input_norm=self.norm(layer.input_layernorm),
            mlp_norm=self.norm(before_mlp),
            scale=settings.scale,
            window=settings.window,
            rope=rope_kinds.index(self.rope_kind(layer)),
            after_attention=self.norm(layer.post_attention_layernorm) if sandwich else None,
            after_mlp=self.norm(layer.post_feedforward_layernorm) if sandwich else None,
            query_norm=self.norm(attention.q_norm) if heads else None,
            key_norm=self.norm(attention.k_norm) if heads else None,
        )

    def norm(self, module: Any) -> Tensor:
        """What the normed numbers are multiplied by, in fp32: a copy."""
        self.expect(module, {f"{self.prefix}RMSNorm"}, set())
        gemma = self.prefix == "Gemma3"
        self._epsilons.add(float(module.eps if gemma else module.variance_epsilon))
        weight = module.weight.detach().float()
        return weight + 1 if gemma else weight.clone()

    def shape(self, config: Any, layer: Any) -> DecoderShape:
        """Sizes by the weights; after all layers were read."""
        if len(self._epsilons) > 1 or len(self._activations) > 1:
            raise NotKnown("its layers differ in their norms' epsilon or their activation")
        attention = layer.self_attn
        size, hidden = int(attention.head_dim), int(config.hidden_size)
        heads, key_heads = attention.q_proj.out_features // size, attention.k_proj.out_features // size
        (epsilon,), (activation,) = self._epsilons, self._activations
        return DecoderShape(hidden, heads, key_heads, size, layer.mlp.gate_proj.out_features, epsilon, activation)


def _unchanged(module: nn.Module) -> None:
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    if "forward" in vars(module) or any(getattr(module, name) for name in hooks):
        raise NotKnown(f"a {type(module).__name__} has hooks or a forward of its own")


def _activation(module: nn.Module) -> str:
    function = module.function if isinstance(module, RowwiseActivation) else module
    _unchanged(function)
    if type(function).__name__ not in ACTIVATIONS:
        raise NotKnown(f"its activation is {type(function).__name__}")
    return ACTIVATIONS[type(function).__name__]


def _weights(module: nn.Module) -> LinearWeights:
    if type(module) is not NativeLinear:
        raise NotKnown(f"a product is computed by {type(module).__name__}, not by the native kernel")
    _unchanged(module)
    bias, scale = module.bias, module.get_buffer("scale") if "scale" in dict(module.named_buffers()) else None
    return LinearWeights(module.weight.detach(), None if bias is None else bias.detach(), scale)
