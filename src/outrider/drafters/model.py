"""A smaller model drafts: chains or trees, over its whole vocabulary or a part, of the target's family or of another.

Sources: Leviathan et al. (2023), Chen et al. (2023). The parts: draft_cache.py follows the committed text,
expansion.py grows a tree from the draft's laws, vocabulary.py and pairing.py say which tokens may be proposed and what
the target calls them, retelling.py and text_bridge.py carry texts between two tokenizers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

from torch import Tensor

from outrider.drafters.base import DraftContext, Drafter, TargetView
from outrider.drafters.draft_cache import DraftCache
from outrider.drafters.expansion import Expansion, Shape
from outrider.drafters.pairing import BRIDGES, Bridge, pair
from outrider.drafters.retelling import Retelling
from outrider.drafters.text_bridge import TextDraft, Tongues
from outrider.drafters.vocabulary import Vocabulary, sample_text, shortlist
from outrider.errors import OptionError, PairingError
from outrider.targets.base import Target, Tokenizer
from outrider.targets.loading import load_target
from outrider.types import DraftTree

Draft = Expansion | TextDraft


@dataclass
class ModelDrafter(Drafter):
    """Drafts with `model`: a name, hub id, folder or .gguf file, or a loaded target.

    Trees. branches: most children of a node, 1 for chains. The nodes that a plan allows are the likeliest ones, by the
    product of the draft's chances along the path. beam: nodes of one depth that one pass of the draft model looks
    beyond; 1 costs what a chain costs and branches off its likeliest path only.

    Stopping early. min_confidence: nothing is drafted after a token to which the draft model gave less than this.
    min_survival: likewise for the product of the chances along the path. Neither looks ahead.

    A part of the vocabulary. draft_vocab: only that many tokens are proposed, the most frequent of a text; the draft
    model's head is cut to them, which saves its time. draft_vocab_text: the file of that text; default the project's
    own prompts, and then the lowest ids.

    Another tokenizer. bridge: "auto" needs none if the vocabularies agree, else takes the better of the two others;
    "intersection": proposes the tokens that both vocabularies hold; "text": writes text, which is cut into the target's
    tokens, and is dropped if that changes it; "none": refuses another tokenizer.

    The draft model itself, if `model` is a name. dtype: of its weights, default the checkpoint's. device: default the
    target's. quantize: "int8" halves what a pass reads, on CPUs; it changes the draft a little and the text not at all.
    backend: of the draft model alone, as in `load`.
    """

    name: ClassVar[str] = "model"
    preferred_depth: ClassVar[int] = 4

    model: str | Target
    branches: int = 1
    beam: int = 1
    min_confidence: float = 0.0
    min_survival: float = 0.0
    draft_vocab: int | None = None
    draft_vocab_text: str | None = None
    bridge: Bridge = "auto"
    dtype: str | None = None
    device: str | None = None
    quantize: str | None = None
    backend: str = "auto"
    _tellers: dict[int, Retelling] = field(default_factory=dict[int, Retelling], init=False, repr=False)
    _loaded: Target | None = field(default=None, init=False, repr=False)  # by name, for every target it is bound to

    def __post_init__(self) -> None:
        for option in ("branches", "beam", "draft_vocab"):
            value = getattr(self, option)
            if value is not None and (type(value) is not int or value < 1):
                raise OptionError(f"{option} is {value!r}; it must be a whole number of at least 1")
        for option in ("min_confidence", "min_survival"):
            if not 0.0 <= getattr(self, option) <= 1.0:
                raise OptionError(f"{option} is {getattr(self, option)!r}; it must lie between 0 and 1")
        if self.bridge not in BRIDGES:
            raise OptionError(f"bridge is {self.bridge!r}; it must be one of {', '.join(BRIDGES)}")
        for option in ("dtype", "device", "quantize", "backend"):
            if getattr(self, option) not in (None, "auto") and not isinstance(self.model, str):
                raise OptionError(f"{option} is for a draft model given by name; this one is loaded already")
        if self.beam > 1 and self.branches == 1:
            raise OptionError(
                f"beam={self.beam} looks beyond several nodes of a depth; it needs branches of at least 2"
            )
        if self.draft_vocab_text is not None and self.draft_vocab is None:
            raise OptionError("draft_vocab_text says which tokens are frequent; it needs draft_vocab=NUMBER")
        if self.branches > 1:  # read by policies; of the instance, because it depends on an option
            vars(self)["preferred_nodes"] = self.preferred_depth * min(self.branches, 3)

    def bind(self, target: TargetView) -> None:
        self._target = target
        draft = self._load(target) if isinstance(self.model, str) else self.model
        self._pairing = pair(self.bridge, target, draft, lambda: sample_text(self.draft_vocab_text))
        draft_ids = self._proposable(draft)
        trimmed = None if self.draft_vocab is None or draft_ids is None else _trimmed(draft, draft_ids)
        self._vocabulary = self._named(draft_ids, head_only=trimmed is not None)
        self._cache = DraftCache(trimmed or draft)
        self._reader = draft.tokenizer
        self._ends = frozenset(draft.info.eos_token_ids)
        self._knows = draft.info.vocab_size  # a trimmed head says less, but reads as much
        self._shape = Shape(self.branches, self.beam, self.min_confidence, self.min_survival)
        self._tellers.clear()

    def _load(self, target: TargetView) -> Target:
        """The model of that name; read again only if the one that is here does not do for this target."""
        place, known = self.device or str(target.info.device), self._loaded
        if known is None or known.info.max_rows < target.info.max_rows or str(known.info.device) != place:
            known = self._loaded = load_target(
                str(self.model),
                backend=self.backend,
                dtype=self.dtype,
                device=place,
                max_rows=target.info.max_rows,
                quantize=self.quantize,
            )
        known.free(range(known.info.max_rows))
        return known

    def end(self, row: int) -> None:
        self._tellers.pop(row, None)
        self._cache.end(row)

    @property
    def held_bytes(self) -> int:
        """Of weights that were loaded here; those of a model that was given are the giver's."""
        return 0 if self._loaded is None else getattr(self._loaded, "weight_bytes", 1)

    def release(self) -> None:
        self._loaded = None
        del self._cache

    def propose(self, contexts: Sequence[DraftContext]) -> list[DraftTree]:
        drafts = [self._begin(context) for context in contexts]
        self._grow([draft for draft in drafts if not isinstance(draft, DraftTree) and draft.wanted])
        return [draft if isinstance(draft, DraftTree) else draft.tree() for draft in drafts]

    def _grow(self, going: list[Draft]) -> None:
        """Passes of the draft model until no row wants another."""
        while going:
            looks = [draft.look() for draft in going]
            for draft, logits in zip(going, self._cache.look(looks), strict=True):
                draft.take(self._read(draft, logits))
            finished = [draft for draft in going if not draft.wanted]
            kept = [draft.look() if draft.wanted else draft.likeliest() for draft in going]
            self._cache.keep(kept, [draft.row for draft in finished])
            going = [draft for draft in going if draft.wanted]

    def _begin(self, context: DraftContext) -> Draft | DraftTree:
        """The row's draft, its cache in step with the text; or the bare root, if there can be none."""
        draft_ids, info = self._tell(context), self._cache.draft.info
        if draft_ids is None:  # the text ends within a character
            return DraftTree.root(context.root)
        if (unknown := max(draft_ids)) >= self._knows:
            note = f"the text holds token {unknown}, unknown to the draft model; bridge=intersection translates"
            return DraftTree.root(context.root, note)
        if not self._cache.admit(context.row):
            return DraftTree.root(context.root, f"the draft model has only {info.max_rows} rows")
        if len(draft_ids) >= info.max_length:
            note = f"no drafts past the draft model's limit of {info.max_length} tokens"
            return DraftTree.root(context.root, note)
        self._cache.follow(context.row, draft_ids)
        depth = min(context.plan.max_depth, context.plan.max_nodes, info.max_length - len(draft_ids))
        if self._pairing.kind == "text":
            return TextDraft(context, depth, self._shape, draft_ids, self._tongues())
        ends = context.params.end_token_ids(self._target.info.eos_token_ids)
        return Expansion(context, depth, self._shape, ends, draft_ids, self._vocabulary.to_draft)

    def _tell(self, context: DraftContext) -> Sequence[int] | None:
        """The committed text in the draft model's ids."""
        if self._pairing.kind == "direct":
            return context.tokens
        if context.row not in self._tellers:
            source, goal = self._tokenizers()
            self._tellers[context.row] = Retelling(source, goal)
        return self._tellers[context.row].tell(context.tokens)

    def _read(self, draft: Draft, logits: Tensor) -> Sequence[Tensor]:
        """The draft model's logits as the row's draft takes them, on the target's device."""
        logits = logits.to(self._target.info.device)
        read = self._vocabulary.select if isinstance(draft, TextDraft) else self._vocabulary.spread
        return list(read(logits))

    def _proposable(self, draft: Target) -> list[int] | None:
        """The draft model's ids that may be proposed; None: all. Raises PairingError if there are none."""
        shared = self._pairing.shared
        if self.draft_vocab is None:
            return None if shared is None else list(shared)
        chosen = shortlist(self.draft_vocab, draft.info, draft.tokenizer, sample_text(self.draft_vocab_text))
        if self._pairing.kind == "direct":
            chosen = [token for token in chosen if token < self._target.info.vocab_size]
        elif shared is not None:
            chosen = [token for token in chosen if token in shared]
        if not chosen:
            raise PairingError(
                f"of the draft_vocab={self.draft_vocab} tokens the target knows none; choose a larger one"
            )
        return chosen

    def _named(self, draft_ids: list[int] | None, *, head_only: bool) -> Vocabulary:
        shared = self._pairing.shared
        names = None if draft_ids is None or shared is None else [shared[token] for token in draft_ids]
        info = self._target.info
        return Vocabulary(info.vocab_size, draft_ids, names, head_only=head_only, device=info.device)

    def _tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """The target's and the draft's; `pair` has seen to it that both are there."""
        return cast(Tokenizer, self._target.tokenizer), cast(Tokenizer, self._reader)

    def _tongues(self) -> Tongues:
        target, draft = self._tokenizers()
        return Tongues(draft, target, self._ends, self._vocabulary.draft_ids)


def _trimmed(draft: Target, ids: Sequence[int]) -> Target | None:
    """The draft model with a head of these rows alone, if its kind can do that."""
    trim = getattr(draft, "trimmed", None)
    return None if trim is None else trim(ids)
