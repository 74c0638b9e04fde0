"""What proposes tokens. One file per drafter, found by name (registry.py); base.py is the interface."""
