"""Requests, rows and rounds."""
