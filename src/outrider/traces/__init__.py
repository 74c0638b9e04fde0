"""A generation as a file: one JSON line a round, written while it runs and read back to be watched (docs/traces.md)."""

from outrider.traces.file import TraceFile, write_trace

__all__ = ["TraceFile", "write_trace"]
