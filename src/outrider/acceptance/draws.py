"""Drawing the token that replaces a rejected one, with the request's own noise."""

from jaxtyping import Float
from torch import Tensor

from outrider.sampling.noise import Noise


def draw_recovered(weights: Float[Tensor, "V"], noise: Noise, position: int) -> int:
    """A token drawn in proportion to `weights` (not all 0; they need not sum to 1), by the Gumbel-max trick."""
    ids = weights.nonzero().squeeze(1)
    scores = weights[ids].double().log() + noise.gumbel_at(position, ids, stream="recover")
    return int(ids[scores.argmax()])
