"""Speed, beside the equality check of the same runs: no figure without it."""
