"""`outrider explain`: one textbook round in the terminal, step by step, played by the real engine."""

from outrider.explain.play import run_explain

__all__ = ["run_explain"]
