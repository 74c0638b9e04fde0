"""What decides how much to speculate. base.py is the interface."""
