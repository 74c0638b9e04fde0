"""The faults: what is replaced by what, and which tests must notice.

`old` occurs exactly once in the file, or the fault is out of date and test_faults.py says so. `tests` are pytest
arguments relative to tests/: a file, and after a blank the -k expression if there is one.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """One replacement in one file below src/outrider."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def fault(name: str, path: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(name, (Edit(path, old, new),), tests)


ROW, LAWS, PROCESS = "engine/row.py", "sampling/laws.py", "sampling/process.py"
EQUALITY, TARGETS, LAW, TREES = (f"conformance/test_{name}.py" for name in ("equality", "targets", "law", "trees"))
TEXTS = f"{EQUALITY} identical_equals_plain and (model or right or chosen) and (everything or frequency)"

FAULTS = (
    # ---- positions, caches, masks
    fault(
        "tree-positions-flat", "types.py",
        "positions += [length + depth for depth in tree.depths]",
        "positions += [length + node for node in range(len(tree.depths))]",
        f"{TARGETS} score_equals_separate_forwards and llama-float64",
    ),
    fault(
        "cache-keeps-the-whole-tree", "targets/hf/kv_cache.py",
        "entry.length += len(path)", "entry.length = entry.written",
        f"{TARGETS} commit_then_continue and llama-float64",
    ),
    fault(
        "cache-gathers-from-the-start", "targets/hf/kv_cache.py",
        "slots = torch.tensor(path, device=self.device) + entry.length",
        "slots = torch.tensor(path, device=self.device)",
        f"{TARGETS} commit_then_continue and llama-float64",
    ),
    fault(
        "mask-sees-siblings", "targets/hf/layout.py",
        "= keys[path.nodes].to(self.buffer.dtype)", "= keys[: len(path.nodes)].to(self.buffer.dtype)",
        f"{TARGETS} score_equals_separate_forwards and llama-float64",
    ),
    fault(
        "window-off-by-one", "targets/hf/layout.py",
        "(slots > own - window)", "(slots >= own - window)",
        f"{TARGETS} long_texts_over_the_window",
    ),
    fault(
        "lean-sees-siblings", "kernels/decoder.py",
        "[parent + row.start if parent >= 0 else -1 for parent in row.parents]",
        "[row.start + place - 1 if place else -1 for place in range(len(row.parents))]",
        "test_lean.py both_ways_say and llama",
    ),
    fault(
        "lean-forgets-the-window", "kernels/decoder.py",
        "layer.window or 0", "0", "test_lean.py both_ways_say and mistral",
    ),
    fault(
        "lean-part-runs-every-layer", "targets/hf/target.py",
        "want, list(numbers), self._layers)", "want, list(numbers))", "test_lean.py part_and_a_short_head and llama",
    ),
    fault(
        "lean-is-never-refused", "targets/hf/lean_check.py",
        "return disagreement(found, model, packed, cache, outputs, logits) or found", "return found",
        "test_lean.py says_something_else",
    ),
    fault(
        "toy-commit-forgets-the-root", "targets/toy.py",
        "extend(tokens[start + node] for node in outcome.path)",
        "extend(tokens[start + node] for node in outcome.path[1:])",
        f"{TARGETS} commit_then_continue and toy",
    ),
    fault(
        "rows-stay-after-the-end", "engine/slots.py",
        "        self._target.free([slot])\n        self._free.append(slot)", "        self._free.append(slot)",
        f"{EQUALITY} plain_runs and budget",
    ),
    fault(
        "drafter-state-stays-after-the-end", "engine/drafting.py",
        "            self.drafters[name].end(row.id)\n", "            pass\n",
        f"{EQUALITY} identical_equals_plain and lookup and plain",
    ),
    fault(
        "draft-model-not-truncated", "drafters/draft_cache.py",
        "self.draft.truncate(self._slots[row], keep)", "pass",
        "cases/test_kvr.py fresh_drafter",
    ),
    Fault(
        "stale-lookup-index",
        (
            Edit("drafters/lookup.py", "self._index[row] = NgramIndex(", "self._index.setdefault(0, NgramIndex("),
            Edit("drafters/lookup.py", "max_ngram)\n\n    def end", "max_ngram))\n\n    def end"),
            Edit("drafters/lookup.py", "self._index.pop(row, None)", "pass"),
            Edit("drafters/lookup.py", "self._index[context.row]", "self._index[0]"),
        ),
        ("cases/test_ngr.py ngr_3",),
    ),
    # ---- laws and settings
    fault(
        "penalties-miss-the-path", LAWS,
        "history = [*self._history, *path]", "history = list(self._history)",
        TEXTS,
    ),
    fault(
        "penalties-count-the-prompt", PROCESS,
        "written = _known(history[num_prompt:], logits)", "written = _known(history, logits)",
        f"{EQUALITY} plain_runs and frequency",
    ),
    fault(
        "repetition-of-negative-logits", PROCESS,
        "torch.where(values < 0, values * repetition, values / repetition)", "values / repetition",
        f"{EQUALITY} plain_runs and repetition",
    ),
    fault(
        "minimum-length-off-by-one", PROCESS,
        "if len(history) - num_prompt < (params.min_new_tokens or 0):",
        "if len(history) - num_prompt <= (params.min_new_tokens or 0):",
        "cases/test_opt.py minimum_length",
    ),
    fault(
        "top-p-off-by-one", "sampling/truncate.py",
        "            return ids[before < top_p]", "            return ids[before < top_p][:-1]",
        f"{EQUALITY} plain_runs and top-p",
    ),
    fault(
        "min-p-of-everything", "sampling/truncate.py",
        "(logits - logits.max()).exp() < min_p", "logits.softmax(0) < min_p",
        f"{EQUALITY} plain_runs and min-p",
    ),
    fault(
        "ties-to-the-highest-id", LAWS,
        "int(self.logits(node).argmax())", "int((self.logits(node) == self.logits(node).max()).nonzero()[-1])",
        "cases/test_num.py num_1",
    ),
    fault(
        "noise-keyed-by-round", ROW,
        "None if self.rule.shared_noise else self.tally.rounds", "self.tally.rounds",
        f"{EQUALITY} identical_equals_plain and model and hot",
    ),
    fault(
        "noise-of-another-id", "sampling/noise.py",
        "steps = (ids.long() + 1) * _signed(_GOLDEN)", "steps = ids.long() * _signed(_GOLDEN)",
        f"{EQUALITY} plain_runs and top-k",
    ),
    fault(
        "position-of-the-root-for-all", LAWS,
        "return len(self._history) + self.tree.depths[node]", "return len(self._history)",
        f"{EQUALITY} identical_equals_plain and model and hot",
    ),
    # ---- acceptance
    fault(
        "wrong-residual", "acceptance/siblings.py",
        "difference.clip(min=0)", "difference.abs()",
        "cases/test_dis.py dis_2",
    ),
    fault(
        "sibling-residual-unmodified", "acceptance/siblings.py",
        "self.remaining = self._target if self.exhausted else excess / mass", "self.remaining = self._target",
        "cases/test_dis.py dis_1 or dis_2", f"{LAW} joint_law_is and rejection-drawn-tree",
    ),
    fault(
        "sibling-draft-law-unmodified", "acceptance/siblings.py",
        "            self._draft = _normalised(without(self._draft, token))", "            pass",
        f"{LAW} joint_law_is and rejection-drawn-tree", "test_acceptance_exact.py",
    ),
    fault(
        "siblings-share-a-coin", "acceptance/rejection.py",
        'noise.uniform(laws.position(node), "accept", index)', 'noise.uniform(laws.position(node), "accept")',
        f"{LAW} joint_law_is and rejection-drawn-tree",
    ),
    fault(
        "draft-law-of-the-next-node", "acceptance/rejection.py",
        "tree.draft_probs[node]", "tree.draft_probs[min(node + 1, len(tree.tokens) - 1)]",
        f"{LAW} joint_law_is and rejection-model",
    ),
    fault(
        "draft-probs-are-not-the-law-drawn-from", "drafters/expansion.py",
        "{node: spot.law.exp() for", "{node: (spot.law / 2).softmax(0) for",
        "cases/test_dis.py model_drafter_reports", f"{LAW} joint_law_is and rejection-model",
    ),
    fault(
        "a-wrong-child-is-followed", "acceptance/identical.py",
        "if tree.tokens[child] == token", "if tree.tokens[child] >= token",
        TEXTS,
    ),
    fault(
        "bonus-counted-as-accepted", ROW,
        "return len(self.kept)", "return len(self.kept) + self.outcome.bonus",
        "cases/test_met.py met_1",
    ),
    # ---- cuts, budgets, text, reports
    fault(
        "tokens-past-the-end", ROW,
        "            if finish:\n", "            if finish and not outcome.path[1:]:\n",
        "cases/test_eos.py eos_1 or eos_4",
    ),
    fault(
        "budget-off-by-one", ROW,
        "self.num_written + num_new >= self.budget", "self.num_written + num_new > self.budget",
        "cases/test_len.py len_1",
    ),
    fault(
        "only-the-first-end-token", ROW,
        "if token in self.end_token_ids:", "if token in self.end_token_ids[:1]:",
        "cases/test_eos.py eos_7",
    ),
    fault(
        "cut-commits-one-too-many", ROW,
        "return Outcome(outcome.path[:count], tree.tokens[outcome.path[count]])",
        "return Outcome(outcome.path[: count + 1], tree.tokens[outcome.path[count]])",
        "cases/test_kvr.py was_cut",
    ),
    fault(
        "stop-looked-for-at-block-ends", ROW,
        'text = checker.push(stream.push(token), stream.pending) if stream else ""',
        'text = checker.push(stream.push(token)) if stream and node == outcome.path[-1] else ""',
        "cases/test_eos.py eos_5 and not real",
    ),
    fault(
        "half-characters", "text.py",
        "return len(self._text) - self._text.endswith(_UNKNOWN)", "return len(self._text)",
        "cases/test_str.py str_2 and not real",
    ),
    fault(
        "logprobs-of-the-root", ROW,
        "token_logprobs(laws, node, token, count)", "token_logprobs(laws, 0, token, count)",
        f"{EQUALITY} reports_are_equal and (model or right)",
    ),
    fault(
        "padding-ids-written", "targets/hf/target.py",
        "rows if tokenizer is None else min(rows, max(tokenizer.vocabulary().values()) + 1)", "rows",
        "cases/test_voc.py wider_than",
    ),
    fault(
        "padding-ids-drafted", "drafters/vocabulary.py",
        "return logits[:, : self._vocab_size]", "return logits",
        "cases/test_voc.py padding_rows or read_draft_probs",
    ),
    fault(
        "drafts-beyond-the-budget", ROW,
        "room = min(self.budget - self.num_written - 1,", "room = min(self.budget - self.num_written + 9,",
        "cases/test_cfg.py largest_depth",
    ),
    fault(
        "engines-share-rows", "engine/leases.py",
        "return known is None or known() in (None, holder)", "return True",
        "test_engine_sharing.py two_engines",
    ),
    fault(
        "an-interrupt-drops-withheld-text", ROW,
        "stream, checker = copy.deepcopy(self.stream), copy.deepcopy(self.checker)  # an interrupt loses no text",
        "stream, checker = self.stream, self.checker",
        "test_engine_hard.py interrupted_cancel",
    ),
    fault(
        "walks-past-the-end", "acceptance/identical.py",
        "if laws.ends(choice):", "if False:",
        "test_acceptance_rules.py after_an_end",
    ),
    fault(
        "an-observer-can-break-rounds", "engine/onlookers.py",
        "except Exception as error:", "except KeyError as error:",
        "test_engine_onlookers.py an_observer",
    ),
    fault(
        "any-shape-of-logits", "engine/round.py",
        "        if found != wanted:", "        if False:",
        "test_engine_lies.py wrong_shape",
    ),
    fault(
        "repeated-siblings-pass", "drafters/fit.py",
        "or (parent, token) in seen:", "or False:",
        f"{TREES} repeats_are_dropped",
    ),
    # ---- llama.cpp's cache
    fault(
        "llamacpp-keeps-the-first-branch", "targets/llamacpp/sequences.py",
        "self._copy(sequence, row, before, length)", "self._copy(row, row, before, length)",
        "llamacpp/test_llamacpp_sequences.py every_path",
    ),
    fault(
        "llamacpp-inner-nodes-of-one-branch", "targets/llamacpp/layout.py",
        "members[local[node - 1]] += members[node]", "members[local[node - 1]] += members[node][:1]",
        "llamacpp/test_llamacpp_sequences.py every_path",
    ),
    fault(
        "llamacpp-window-not-looked-at", "targets/llamacpp/sequences.py",
        "needed = max(0, length - self._window + 1) if self._window else 0", "needed = length",
        "llamacpp/test_llamacpp_sequences.py window_that_has_left",
    ),
)  # fmt: skip

QUICK = ("bonus-counted-as-accepted", "budget-off-by-one", "penalties-count-the-prompt")
"""Run with every suite; the others by `python -m tests.faults`."""
