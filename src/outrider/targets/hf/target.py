"""A decoder-only Hugging Face model as a target: our cache rows, our trees, its unchanged model code."""

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from outrider.errors import ModelError, OptionError, TargetError, UnsupportedError
from outrider.targets.base import Exactness, TargetInfo
from outrider.targets.hf import bridge
from outrider.targets.hf.exact import differences
from outrider.targets.hf.facts import cache_shape, choose_max_length, refuse_unsupported
from outrider.targets.hf.generation import end_token_ids
from outrider.targets.hf.head import with_head_rows
from outrider.targets.hf.kv_cache import KVCache
from outrider.targets.hf.layout import Pass, lay_out
from outrider.targets.hf.lean import LeanPass
from outrider.targets.hf.lean_check import checked_lean_pass
from outrider.targets.hf.linear import make_row_independent
from outrider.targets.hf.part import with_layers
from outrider.targets.hf.tokenizer import HFTokenizer
from outrider.types import DraftTree, Outcome, Packed, Scored, pack

logger = logging.getLogger("outrider.targets")

PREFILL_CHUNK = 256  # nodes in a pass without logits


class HFTarget:
    """`targets.base.Target` over a transformers causal language model.

    model: any transformers model with plain causal attention, in memory; it stays as it is, for we work on a copy of
    its modules that shares its weights. tokenizer: a transformers tokenizer or None. exact: see `loader.load_target`.
    quantize: what has been done to the model's weights (int8.py), for `info`.
    lean: whether the native pass (lean.py) may stand in for the modules where it fits; `info.forward` says what runs.
    Raises UnsupportedError, OptionError, ModelError.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        name: str | None = None,
        max_rows: int = 8,
        max_length: int | None = None,
        exact: Exactness | None = None,
        quantize: str | None = None,
        generation_defaults: Mapping[str, Any] | None = None,
        lean: bool = True,
    ) -> None:
        config = model.config
        refuse_unsupported(config, type(model))
        check_options(max_rows, exact)
        label = str(name or getattr(config, "name_or_path", "") or config.model_type)
        self._tokenizer = None if tokenizer is None else HFTokenizer(tokenizer, label)
        self.info = TargetInfo(
            name=label,
            vocab_size=_vocab_size(model, self._tokenizer),
            max_length=choose_max_length(config, max_length),
            max_rows=max_rows,
            eos_token_ids=end_token_ids(getattr(model, "generation_config", None), config, tokenizer),
            device=model.device,
            dtype=model.dtype,
            quantize=quantize,
            generation_defaults=dict(generation_defaults or {}),
        )
        self._model = _own_copy(model)
        self._blocks = _decoder_layers(self._model)
        self._layers = list(range(len(self._blocks)))
        self._cache = KVCache(cache_shape(config), _cache_dtype(model), model.device)
        self._scored: Packed | None = None
        self._lean: LeanPass | None = None
        bridge.take_over(self._model)
        self.info = self._confirmed(exact, lean)

    @property
    def tokenizer(self) -> HFTokenizer | None:
        return self._tokenizer

    def trimmed(self, ids: Sequence[int]) -> "HFTarget":
        """This model with a head of these rows alone: column i of its logits speaks of ids[i], and vocab_size is their
        number. It shares the weights and has cache rows of its own. Raises OptionError.
        """
        twin = copy.copy(self)
        twin._model = with_head_rows(self._model, ids)
        twin._cache = KVCache(self._cache.shape, _cache_dtype(self._model), self.info.device)
        twin._scored = None
        twin.info = replace(self.info, vocab_size=len(ids))
        return twin

    @property
    def weight_bytes(self) -> int:
        """What the model's weights take."""
        return sum(weights.nbytes for weights in (*self._model.parameters(), *self._model.buffers()))

    @property
    def pass_bytes(self) -> int:
        """What a pass reads of them: all but an embedding that is not the head too, for that is looked up."""
        embedding, head = self._model.get_input_embeddings().weight, self._model.get_output_embeddings().weight
        return self.weight_bytes - (0 if head.data_ptr() == embedding.data_ptr() else embedding.nbytes)

    @property
    def num_layers(self) -> int:
        return len(self._blocks)

    def part(self, layers: Sequence[int]) -> "HFTarget":
        """See `Layered.part`. Raises TargetError for layers that the model does not have."""
        twin = copy.copy(self)
        twin._model = with_layers(self._model, self._blocks, layers)
        twin._blocks = _decoder_layers(twin._model)
        twin._layers, twin._scored = list(layers), None
        return twin

    @torch.no_grad()
    def prefill(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Append tokens[i] to rows[i], at most PREFILL_CHUNK at once. If it raises, the rows are as they were."""
        before = {row: self.length(row) for row in rows}
        todo = [(row, list(new)) for row, new in zip(rows, tokens, strict=True) if new]
        self._check_room({row: before[row] + len(new) for row, new in todo})
        try:
            while todo:
                todo = self._prefill_some(todo)
        except BaseException:
            for row, length in before.items():
                self._cache.truncate(row, length)
            raise

    @torch.no_grad()
    def score(self, packed: Packed, want: Int[Tensor, "M"] | None = None, hidden_layers: Sequence[int] = ()) -> Scored:
        """See `Target.score`. hidden_layers: decoder layers whose output is wanted, 0 the first. Raises TargetError."""
        self._scored = None
        self._check_pack(packed)
        wanted = torch.arange(packed.num_nodes, device=self.info.device) if want is None else want
        logits, hidden = self._pass(packed, wanted, hidden_layers)
        self._scored = packed
        assert logits is not None
        return Scored(logits[:, : self.info.vocab_size], hidden)

    @torch.no_grad()
    def commit(self, outcomes: Mapping[int, Outcome]) -> None:
        """Keep each row's path of the last score; drop all other nodes. Raises TargetError."""
        packed = self._scored
        if packed is None:
            raise TargetError("commit without a score before it")
        unknown = outcomes.keys() - {row for row in packed.row_ids if self._cache.holds(row)}
        if unknown:
            raise TargetError(f"commit names row {min(unknown)}, which was not in the last score, or was freed")
        self._scored = None
        for row in packed.row_ids:
            if row in outcomes:
                self._cache.keep(row, outcomes[row].path)
            else:
                self._cache.truncate(row, self._cache.length(row))

    @torch.no_grad()
    def truncate(self, row: int, length: int) -> None:
        self._cache.truncate(row, length)

    @torch.no_grad()
    def copy(self, source: int, row: int, length: int) -> None:
        """See `Target.copy`. Raises TargetError if the source holds fewer tokens."""
        self._check_room({row: length})
        if length > self.length(source):
            raise TargetError(f"row {source} holds {self.length(source)} tokens, not {length}")
        self._cache.copy(source, row, length)

    def length(self, row: int) -> int:
        return self._cache.length(row)

    def free(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._cache.free(row)

    def _prefill_some(self, todo: list[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
        """One pass over the first PREFILL_CHUNK tokens of what is left; returns the rest."""
        room, now, later = PREFILL_CHUNK, list[tuple[int, list[int]]](), list[tuple[int, list[int]]]()
        for row, new in todo:
            piece, rest = new[:room], new[room:]
            room -= len(piece)
            now += [(row, piece)] if piece else []
            later += [(row, rest)] if rest else []
        trees = [DraftTree.chain(piece[0], piece[1:]) for _, piece in now]
        rows = [row for row, _ in now]
        self._pass(pack(trees, rows, [self.length(row) for row in rows], self.info.device), None)
        for row, piece in now:
            self._cache.keep(row, range(len(piece)))
        return later

    def _pass(
        self, packed: Packed, want: Tensor | None, hidden_layers: Sequence[int] = ()
    ) -> tuple[Tensor | None, dict[int, Tensor]]:
        """Logits of the wanted nodes (None: none) and the outputs of some layers."""
        for layer in hidden_layers:
            self._block(layer)
        if self._lean is not None:
            numbers = {self._layers[layer]: layer for layer in hidden_layers}  # a part counts its own layers
            logits, hidden = self._lean.run(self._model, packed, self._cache, want, list(numbers), self._layers)
            return logits, {numbers[number]: output for number, output in hidden.items()}
        return self._plain_pass(packed, want, hidden_layers)[:2]

    def _plain_pass(
        self, packed: Packed, want: Tensor | None, hidden_layers: Sequence[int] = ()
    ) -> tuple[Tensor | None, dict[int, Tensor], Pass]:
        """The same by transformers' own modules, and what their attention asked for."""
        layout = lay_out(packed, self._cache, drafted=want is not None)
        hidden: dict[int, Tensor] = {}
        hooks = [self._block(layer).register_forward_hook(_keep(hidden, layer)) for layer in hidden_layers]
        try:
            logits = bridge.run_model(self._model, packed.tokens, packed.positions, layout, want)
        finally:
            for hook in hooks:
                hook.remove()
        self._check_layers(layout)
        return logits, hidden, layout

    def _check_layers(self, layout: Pass) -> None:
        if layout.layers != self._layers:
            raise UnsupportedError(
                f"{self._model.config.model_type} has layers that do not go through the attention interface, "
                "so they cannot be rolled back after a rejected draft"
            )

    def _check_pack(self, packed: Packed) -> None:
        if len(set(packed.row_ids)) != len(packed.row_ids):
            raise TargetError(f"a row appears twice in a pass: {packed.row_ids}")
        roots = packed.positions[list(packed.starts[:-1])].tolist()
        for row, root in zip(packed.row_ids, roots, strict=True):
            if root != self.length(row):
                raise TargetError(f"row {row} holds {self.length(row)} tokens; its root was placed at {root}")
        self._check_room(dict.fromkeys(packed.row_ids, 0))
        if (last := int(packed.positions.max())) >= self.info.max_length:
            raise TargetError(f"a node at position {last} is beyond the limit of {self.info.max_length} tokens")

    def _check_room(self, lengths: Mapping[int, int]) -> None:
        for row, length in lengths.items():
            if not 0 <= row < self.info.max_rows:
                raise TargetError(f"row {row} does not exist; this target has rows 0 to {self.info.max_rows - 1}")
            if length > self.info.max_length:
                raise TargetError(f"row {row} would hold {length} tokens; the limit is {self.info.max_length}")

    def _block(self, layer: int) -> nn.Module:
        if not 0 <= layer < len(self._blocks):
            raise TargetError(f"hidden layer {layer} does not exist; this model has 0 to {len(self._blocks) - 1}")
        return self._blocks[layer]

    def _confirmed(self, exact: Exactness | None, lean: bool) -> TargetInfo:
        """The facts, with the guarantee that holds on this machine."""
        if exact == "near-tie":
            self._probe()
            return replace(self.info, exact="near-tie", exact_reason="asked for")
        if self.info.device.type != "cpu":
            self._probe()
            reason = f"on {self.info.device.type} kernels are chosen by the width of the pass"
        else:
            make_row_independent(self._model)
            self.info = info = replace(self.info, forward=self._choose_pass() if lean else "plain: not asked for")
            logger.info("%s: the pass is %s", info.name, info.forward)
            reason = ", ".join(differences(self, info.vocab_size, info.max_rows, info.device, info.max_length))
            reason = reason and f"the test at load found other bits for {reason}"
        if reason and exact == "bitwise":
            raise ModelError(f"{self.info.name} is not exact to the bit here: {reason}; exact='near-tie' accepts that")
        return replace(self.info, exact="near-tie" if reason else "bitwise", exact_reason=reason)

    @torch.no_grad()
    def _choose_pass(self) -> str:
        """Takes the lean pass where it fits and says what the modules say; returns "lean", or why it is not taken."""
        text = DraftTree.chain(0, (1 % self.info.vocab_size, 0)[: self.info.max_length - 1])
        packed = pack([text], [0], [0], self.info.device)
        try:
            plain = self._plain_pass(packed, torch.arange(packed.num_nodes), range(len(self._blocks)))
            found = checked_lean_pass(self._model, packed, self._cache, plain, self.info.max_length)
        finally:
            self.free([0])
        self._lean = None if isinstance(found, str) else found
        return f"plain: {found}" if isinstance(found, str) else "lean"

    def _probe(self) -> None:
        """One token through every layer, so that an unsupported model is refused now and not at the first request."""
        self.score(pack([DraftTree.root(0)], [0], [0], self.info.device))
        self.free([0])


def check_options(max_rows: int, exact: str | None) -> None:
    if type(max_rows) is not int or max_rows < 1:
        raise OptionError(f"max_rows is {max_rows!r}; it must be a whole number, at least 1")
    if exact not in (None, "bitwise", "near-tie"):
        raise OptionError(f"exact is {exact!r}; it must be 'bitwise', 'near-tie' or None")


def _vocab_size(model: Any, tokenizer: HFTokenizer | None) -> int:
    """Real tokens: rows of the LM head beyond the tokenizer's largest id are padding."""
    rows = model.get_output_embeddings().weight.shape[0]
    return rows if tokenizer is None else min(rows, max(tokenizer.vocabulary().values()) + 1)


def _cache_dtype(model: Any) -> torch.dtype:
    """CPUs attend in float32 (float64 for a float64 model), so that keys are not converted in every pass."""
    if model.device.type != "cpu" or model.dtype == torch.float64:
        return model.dtype
    return torch.float32


def _own_copy(model: Any) -> Any:
    """The same weights under modules of our own, so that the caller's model keeps its own attention and layers."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared).eval()


def _decoder_layers(model: Any) -> nn.ModuleList:
    for module in model.base_model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == model.config.num_hidden_layers:
            return module
    raise UnsupportedError(f"{model.config.model_type} has no plain list of {model.config.num_hidden_layers} layers")


def _keep(hidden: dict[int, Tensor], layer: int) -> Callable[[nn.Module, Any, Any], None]:
    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        hidden[layer] = (output[0] if isinstance(output, tuple) else output)[0]

    return hook
