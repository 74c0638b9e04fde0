"""Deliberate faults: small wrong patches of the source, each of which the suite must catch."""
