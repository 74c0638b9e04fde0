"""Models whose words are wanted. base.py is the interface."""
