"""Proof by running: plain against speculative on the same prompts, every first difference explained or not."""

from outrider.certify.grid import Grid, Job
from outrider.certify.records import Certificate, Difference, JobResult
from outrider.certify.runner import certify

__all__ = ["Certificate", "Difference", "Grid", "Job", "JobResult", "certify"]
