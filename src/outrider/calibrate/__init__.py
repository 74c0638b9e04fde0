"""Measures what rounds cost on this machine, keeps it, and gives it to the automatic policy and the planner."""
