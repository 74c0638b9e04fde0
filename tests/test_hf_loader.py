"""Names, files, settings and refusals of the loader; real weights where only they can tell."""

import json

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from helpers_hf import SIZES, chain, score, text, tiny
from outrider.errors import ModelError, OptionError, PromptError, UnsupportedError
from outrider.targets.hf.facts import refuse_unsupported
from outrider.targets.hf.generation import end_token_ids, generation_defaults
from outrider.targets.hf.gguf import tie_again
from outrider.targets.hf.loader import load_target
from outrider.types import DraftTree


def word_tokenizer(num_words: int = 50) -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({f"w{i}": i for i in range(num_words)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="w0")


@pytest.fixture
def folder(tmp_path):
    """A saved tiny model of 61 rows whose tokenizer knows 50 words."""
    tiny("llama", torch.float32).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def set_generation(folder, **settings) -> None:
    (folder / "generation_config.json").write_text(json.dumps(settings))


def test_a_folder_loads_with_the_real_vocabulary_only(folder):  # VOC-1
    target = load_target(str(folder))
    assert target.info.vocab_size == 50
    assert (target.info.dtype, target.info.max_length, target.info.max_rows) == (torch.float32, 2048, 8)
    assert score(target, [chain(text(5))], [0]).shape == (5, 50)
    assert target.tokenizer.encode("w3 w4") == [3, 4]
    assert target.tokenizer.decode([5, 6]) == "w5 w6"
    with pytest.raises(PromptError, match="has no chat template; give the prompt as text or token ids"):
        target.tokenizer.encode_chat([{"role": "user", "content": "w1"}])


@pytest.mark.parametrize("dtype", [torch.float64, "float64"])
def test_dtype_takes_effect(folder, dtype):
    target = load_target(str(folder), dtype=dtype, max_rows=2, max_length=33)
    assert (target.info.dtype, target.info.max_rows, target.info.max_length) == (torch.float64, 2, 33)
    assert score(target, [DraftTree.root(1)], [0]).dtype == torch.float64


def test_generation_settings_become_defaults(folder):  # GRE-4, EOS-7
    set_generation(folder, do_sample=True, temperature=0.7, top_k=20, repetition_penalty=1.05, eos_token_id=[2, 45])
    target = load_target(str(folder))
    assert dict(target.info.generation_defaults) == {
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 20,
        "repetition_penalty": 1.05,
    }
    assert target.info.eos_token_ids == (2, 45)
    bare = load_target(str(folder), ignore_generation_config=True)
    assert (dict(bare.info.generation_defaults), bare.info.eos_token_ids) == ({}, (2, 45))


def test_an_unsupported_generation_setting_is_refused_by_name(folder):
    set_generation(folder, no_repeat_ngram_size=3)
    with pytest.raises(UnsupportedError, match=r"no_repeat_ngram_size=3.*ignore_generation_config=True"):
        load_target(str(folder))
    assert not load_target(str(folder), ignore_generation_config=True).info.generation_defaults


@pytest.mark.parametrize(
    "settings",
    [{"num_beams": 4}, {"typical_p": 0.9}, {"bad_words_ids": [[1]]}, {"forced_eos_token_id": 2}, {"min_length": 5}],
)
def test_each_setting_that_changes_the_text_is_refused(settings):
    with pytest.raises(UnsupportedError, match=next(iter(settings))):
        generation_defaults(settings)


def test_settings_without_effect_pass_and_others_are_renamed():
    assert generation_defaults({"num_beams": 1, "typical_p": 1.0, "max_length": 20, "pad_token_id": 0}) == {}
    assert generation_defaults({"suppress_tokens": [3], "stop_strings": ["x"]}) == {
        "banned_token_ids": [3],
        "stop": ["x"],
    }


def test_end_tokens_come_from_the_first_source_that_names_any():
    class Source:
        def __init__(self, ids):
            self.eos_token_id = ids

    assert end_token_ids(None, Source(None), Source(7), Source([8])) == (7,)
    assert end_token_ids(Source([8, 9])) == (8, 9)
    assert end_token_ids(None) == ()


REFUSED = {
    "mamba": (transformers.MambaConfig(num_hidden_layers=1, hidden_size=8, state_size=4), "rolled back"),
    "rwkv": (transformers.RwkvConfig(num_hidden_layers=1, hidden_size=8), "recurrent"),
    "jamba": (transformers.JambaConfig(num_hidden_layers=8, hidden_size=8), "rolled back"),
    "qwen3_next": (transformers.Qwen3NextConfig(num_hidden_layers=4, hidden_size=8), "linear_attention"),
    "t5": (transformers.T5Config(num_layers=1, d_model=8), "encoder-decoder"),
    "bloom": (transformers.BloomConfig(n_layer=1, hidden_size=8), "attention interface"),
    "llama4_text": (transformers.Llama4TextConfig(num_hidden_layers=4, hidden_size=8), "chunked"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_models_that_cannot_be_rolled_back_are_refused_before_weights_are_read(kind, tmp_path):  # KVR-4
    config, reason = REFUSED[kind]
    config.save_pretrained(tmp_path)  # no weights here: reading them would fail otherwise
    with pytest.raises(UnsupportedError, match=f"{kind}.*{reason}"):
        load_target(str(tmp_path))


def test_models_that_attend_backwards_are_refused():
    config = transformers.Gemma3TextConfig(**{**SIZES, "use_bidirectional_attention": True})
    with pytest.raises(UnsupportedError, match="attends to later tokens"):
        refuse_unsupported(config)


def test_what_is_no_model_gets_one_clear_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("x")
    (tmp_path / "broken.gguf").write_text("not a model")
    cases = {
        "smollm2-135": "did you mean 'smollm2-135m'",
        str(tmp_path / "absent"): "no such folder or file",
        str(tmp_path / "empty"): "holds no config.json",
        str(tmp_path / "note.txt"): "no .gguf file",
        str(tmp_path / "absent.gguf"): "no file",
        str(tmp_path / "broken.gguf"): "is not a GGUF file",
    }
    for name, message in cases.items():
        with pytest.raises(ModelError, match=message) as caught:
            load_target(name)
        assert "\n" not in str(caught.value)


def test_broken_weights_are_named(folder):
    (folder / "model.safetensors").write_bytes(b"\0" * 64)
    with pytest.raises(ModelError, match="cannot load the model"):
        load_target(str(folder))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float"}, "unknown dtype 'float'; did you mean 'float"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"max_length": 4000}, "max_length is 4000; llama here goes up to 2048"),
        ({"max_rows": 0}, "max_rows is 0"),
        ({"exact": "yes"}, "exact is 'yes'"),
    ],
)
def test_bad_options_are_named(folder, options, message):
    with pytest.raises(OptionError, match=message):
        load_target(str(folder), **options)


def test_equal_embedding_and_head_become_one_tensor():
    model = tiny("llama", torch.float32)
    tie_again(model)
    assert model.lm_head.weight is not model.model.embed_tokens.weight  # different numbers stay apart
    model.lm_head.weight = torch.nn.Parameter(model.model.embed_tokens.weight.detach().clone())
    tie_again(model)
    assert model.lm_head.weight is model.model.embed_tokens.weight


@pytest.mark.real
@pytest.mark.parametrize(("name", "vocab_size", "length"), [("smollm2-135m", 49152, 40), ("gemma3-270m", 262_145, 40)])
def test_real_models_are_bitwise_and_write_what_transformers_writes(name, vocab_size, length):
    target = load_target(name, max_length=1024)
    assert (target.info.exact, target.info.dtype) == ("bitwise", torch.bfloat16)
    assert abs(target.info.vocab_size - vocab_size) <= 1
    tokens = target.tokenizer.encode("The capital of France is Paris. The capital of Italy is")
    wide = score(target, [chain(tokens)], [0])
    target.prefill([0], [tokens[:-1]])
    assert torch.equal(score(target, [DraftTree.root(tokens[-1])], [0])[0], wide[-1])
    assert target.tokenizer.decode([int(wide[-1].argmax())]).strip() == "Rome"
