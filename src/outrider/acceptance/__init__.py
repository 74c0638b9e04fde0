"""Rules that decide which drafted tokens are kept, and which token follows them."""

from outrider.acceptance.base import Rule
from outrider.acceptance.registry import available_rules, make_rule

__all__ = ["Rule", "available_rules", "make_rule"]
