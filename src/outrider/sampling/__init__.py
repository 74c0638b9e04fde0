"""From logits to laws to tokens: settings, noise, processing, reports. Nothing after this package accepts logits."""

from outrider.sampling.laws import Laws, checked_argmax
from outrider.sampling.logprobs import TokenLogprobs, token_logprobs
from outrider.sampling.noise import Noise, Stream
from outrider.sampling.params import SamplingParams
from outrider.sampling.process import draft_law, draw_without_replacement

__all__ = [
    "Laws",
    "Noise",
    "SamplingParams",
    "Stream",
    "TokenLogprobs",
    "checked_argmax",
    "draft_law",
    "draw_without_replacement",
    "token_logprobs",
]
