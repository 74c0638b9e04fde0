"""Hugging Face models as targets. bridge.py is the only file that touches transformers' attention interface."""
