"""A model's generation_config.json under our names. What would change the text and is not supported is refused."""

from collections.abc import Mapping
from typing import Any

from outrider.errors import UnsupportedError

SAME_NAME = (
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "min_new_tokens",
    "max_new_tokens",
)
RENAMED = {"suppress_tokens": "banned_token_ids", "stop_strings": "stop"}
# Setting: value at which it does nothing. Lengths in all (max_length, min_length) and beam settings are among them.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "bad_words_ids": (),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "sequence_bias": (),
    "guidance_scale": (1.0,),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "top_h": (),
    "penalty_alpha": (0.0,),
    "exponential_decay_length_penalty": (),
    "watermarking_config": (),
    "num_beams": (1,),
    "dola_layers": (),
    "min_length": (0,),
    "remove_invalid_values": (False,),
    "renormalize_logits": (False, True),
    "max_time": (),
}


def generation_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What `settings` (those that the file sets) mean under SamplingParams names, with do_sample beside them.

    max_length is left out: it counts the prompt too, and the engine's own limit is clearer. Raises UnsupportedError.
    """
    for name, neutral in NEUTRAL.items():
        value = settings.get(name)
        if value is not None and value not in neutral:
            raise UnsupportedError(
                f"the model's generation_config.json sets {name}={value!r}, which is not supported; "
                "load with ignore_generation_config=True to do without the file's settings"
            )
    defaults = {name: settings[name] for name in SAME_NAME if settings.get(name) is not None}
    return defaults | {ours: settings[name] for name, ours in RENAMED.items() if settings.get(name)}


def end_token_ids(*sources: Any) -> tuple[int, ...]:
    """The end tokens that the first source that has any names: generation config, model config, tokenizer."""
    for source in sources:
        named = getattr(source, "eos_token_id", None)
        if named is not None:
            return tuple(named) if isinstance(named, (list, tuple)) else (int(named),)
    return ()
