"""The lean pass beside the model's own modules: where it is taken, where not and why, and that both say the same."""

import copy
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from helpers_hf import CONFIGS, TREE, chain, outcome, score, text, tiny
from outrider.kernels import available, native_linear, quantize_rows
from outrider.targets.hf import family, lean
from outrider.targets.hf.layout import Settings
from outrider.targets.hf.linear import make_row_independent
from outrider.targets.hf.target import HFTarget
from outrider.types import DraftTree, pack

needs_kernels = pytest.mark.skipif(not available()[0], reason=available()[1])
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3")
ROPES = {
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 512},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "rope_theta": 10000.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
}


def of_config(change, kind="llama", dtype=torch.float32):
    """A tiny random model of this kind whose configuration was changed first."""
    torch.manual_seed(0)
    config = copy.deepcopy(CONFIGS[kind]())
    change(config)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(dtype).eval()


def row_independent(model):
    make_row_independent(model)
    return model


def both(model, **options):
    """Logits of a tree far into a text, lean and plain, and the lean target."""
    targets = [HFTarget(model, max_length=256, lean=lean, **options) for lean in (True, False)]
    assert (targets[0].info.forward, targets[1].info.forward) == ("lean", "plain: not asked for")
    for target in targets:
        target.prefill([0], [text(70)])
    return *(score(target, [TREE], [0]) for target in targets), targets[0]


def close(ours, theirs, tolerance=1e-4):
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm()) < tolerance


@needs_kernels
@pytest.mark.parametrize("kind", FAMILIES)
def test_both_ways_say_the_same(kind):
    ours, theirs, target = both(tiny(kind, torch.float32))
    assert close(ours, theirs)
    assert target.info.exact == "bitwise"


@needs_kernels
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_bf16_model_is_computed_as_its_fp32_copy(kind):
    model = tiny(kind, torch.bfloat16)
    ours, theirs, _ = both(model)
    wide = copy.deepcopy(model).float()
    if kind == "gemma3":  # the embedding's scale is a bf16 number, too
        wide.model.embed_tokens.embed_scale = wide.model.embed_tokens.embed_scale.bfloat16().float()
    reference = HFTarget(wide, max_length=256, lean=False)
    reference.prefill([0], [text(70)])
    right = score(reference, [TREE], [0])
    assert close(ours, right, 3e-3 if kind == "gemma3" else 1e-4)  # gemma3's embeddings are rounded once
    assert close(theirs, right, 0.05)
    assert ours.dtype == torch.float32


@needs_kernels
@pytest.mark.parametrize("rope", ROPES)
def test_every_kind_of_rotation_is_the_models_own(rope):
    model = of_config(lambda config: setattr(config, "rope_parameters", ROPES[rope]))
    ours, theirs, target = both(model)
    assert close(ours, theirs)
    plain = of_config(lambda config: None)
    plain.load_state_dict(model.state_dict())
    stock = HFTarget(plain, max_length=256)
    stock.prefill([0], [text(70)])
    if rope != "dynamic":  # which changes only beyond the model's length
        assert not close(score(stock, [TREE], [0]), ours)
    assert target.info.exact == "bitwise"


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_of_layers_are_those_of_the_modules(dtype):
    model = tiny("qwen3", dtype)
    packed = pack([TREE], [0], [0])
    ours, theirs = (
        HFTarget(model, max_length=64, lean=lean).score(packed, hidden_layers=(0, 2)).hidden for lean in (True, False)
    )
    for layer in (0, 2):
        assert ours[layer].dtype == theirs[layer].dtype == dtype
        assert close(ours[layer], theirs[layer], 1e-4 if dtype == torch.float32 else 0.05)


@needs_kernels
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_part_and_a_short_head_run_lean_too(kind):
    """Both ways say the same of layers 0 and 2, over what the whole model committed, and of some of the head's rows."""
    model, packed, found = tiny(kind, torch.float32), pack([TREE], [0], [9]), []
    for whole in (HFTarget(model, max_length=64), HFTarget(model, max_length=64, lean=False)):
        whole.prefill([0], [text(9)])
        part, short = whole.part([0, 2]), whole.trimmed([7, 3, 50])
        short.prefill([0], [text(9)])
        scored = part.score(packed, hidden_layers=(1,))
        found.append((scored.logits, scored.hidden[1], short.score(packed).logits, whole.score(packed).logits))
    for ours, theirs in zip(*found, strict=True):
        assert close(ours, theirs)
    partly, _, short, whole = found[0]
    assert torch.equal(short, whole[:, [7, 3, 50]])
    assert not close(partly, whole)


@needs_kernels
def test_int8_weights_run_lean():
    model = tiny("qwen2", torch.bfloat16)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear:
                weight, scale = quantize_rows(child.weight)
                setattr(parent, name, native_linear(weight, child.bias, scale))
    ours, theirs, target = both(model, quantize="int8")
    assert close(ours, theirs, 0.05)
    assert target.info.exact == "bitwise"


@needs_kernels
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_poisoned_draft_reaches_nobody_else(kind):
    model, tokens = tiny(kind, torch.float32), text(6)
    target = HFTarget(model, max_length=64)
    target.prefill([0], [tokens])
    clean = score(target, [chain(tokens)], [0])
    with torch.no_grad():
        model.get_input_embeddings().weight[60] = float("nan")  # heard, for the weights are shared
    target.prefill([1], [tokens])
    mixed = score(target, [DraftTree((tokens[0], 60, tokens[1], 60), (-1, 0, 0, 2)), chain([60, 1])], [0, 1])
    assert torch.equal(mixed[[0, 2], :60], clean[:2, :60])  # a tied head is poisoned at 60 itself
    assert mixed[[1, 3, 4, 5]].isnan().all()
    target.commit({0: outcome(0, 2)})
    assert torch.equal(score(target, [chain(tokens[2:])], [0])[:, :60], clean[2:, :60])


# ---- where it is not taken


def plain_because(model, reason, **options):
    info = HFTarget(model, max_length=64, **options).info
    assert info.forward.startswith("plain: "), info.forward
    assert reason in info.forward
    assert info.exact == "bitwise"


@needs_kernels
def test_what_is_not_known_stays_with_its_modules():
    plain_because(tiny("gpt2", torch.float32), "GPT2LMHeadModel is not of the known family")
    plain_because(tiny("llama"), "computed by PaddedLinear, not by the native kernel")
    plain_because(of_config(lambda config: setattr(config, "hidden_act", "gelu")), "its activation is GELUActivation")
    capped = replace(Settings(None, 1.0), softcap=5.0)
    with pytest.raises(family.NotKnown, match="soft-capped"):
        family.read_decoder(row_independent(tiny("gemma3", torch.float32)), [capped] * 3)


class Doubled(torch.nn.Module):
    """A part that somebody put around another."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *arguments, **options):
        return self.inner(*arguments, **options) * 2


@needs_kernels
def test_a_model_that_somebody_changed_stays_with_its_modules():
    model = tiny("llama", torch.float32)
    model.model.layers[1].mlp = Doubled(model.model.layers[1].mlp)
    plain_because(model, "Doubled is in the place of LlamaMLP")
    model = tiny("llama", torch.float32)
    model.model.norm.register_forward_hook(lambda module, inputs, output: output * 2)
    plain_because(model, "hooks")
    model = tiny("llama", torch.float32)
    model.model.layers[0].mlp.forward = lambda x: x
    plain_because(model, "a forward of its own")
    model = tiny("llama", torch.float32)
    model.model.layers[2].input_layernorm.variance_epsilon = 0.5
    plain_because(model, "epsilon")
    model = tiny("llama", torch.float32)
    model.model.layers[2].self_attn.extra = torch.nn.Identity()
    plain_because(model, "other parts")


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("field", ["input_norm", "mlp_norm", "query_norm", "after_mlp", "scale", "up"])
def test_a_lean_pass_that_says_something_else_is_left_out(field, dtype, monkeypatch):
    """One layer is described wrongly: a norm forgotten, a scale, a product of another layer."""
    original = family._Reader.layer

    def wrong(self, layer, *rest):
        right = original(self, layer, *rest)
        if layer.self_attn.layer_idx != 1:
            return right
        changed = {"scale": 2 * right.scale, "up": right.gate, "query_norm": None, "after_mlp": None}
        return replace(right, **{field: changed.get(field, torch.ones(32))})

    monkeypatch.setattr(family._Reader, "layer", wrong)
    plain_because(tiny("gemma3", dtype), "layer 1 says something else than the model's own")


@needs_kernels
def test_a_final_norm_that_says_something_else_is_left_out(monkeypatch):
    original = family.read_decoder
    monkeypatch.setattr(lean, "read_decoder", lambda *given: replace(original(*given), final_norm=torch.ones(32)))
    plain_because(tiny("llama", torch.float32), "the logits are others")


def test_the_switch_leaves_everything_to_the_modules(monkeypatch):
    monkeypatch.setenv(lean.SWITCH, "0")
    plain_because(tiny("llama", torch.float32), "switched off by OUTRIDER_LEAN=0")
    monkeypatch.delenv(lean.SWITCH)
    plain_because(tiny("llama", torch.float32), "not asked for", lean=False)
    assert HFTarget(tiny("llama", torch.float32), max_length=64, exact="near-tie").info.forward == ""


@needs_kernels
def test_rotations_do_not_depend_on_when_they_were_needed():
    model = tiny("llama", torch.float32)
    rotary = model.model.rotary_emb
    size = model.config.hidden_size // model.config.num_attention_heads
    early, late = (lean.RopeTable(rotary, (), size, 200) for _ in range(2))
    for length in (1, 64, 65, 130, 200):
        grown = early.upto(length).clone()
    assert torch.equal(grown[:200], late.upto(200)[:200])
    assert torch.equal(late.upto(200)[199], late.upto(200)[255])  # none beyond the limit was asked for
