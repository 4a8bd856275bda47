"""Passes: named rewrites in lists, each of which can be verified, timed and shown."""

from __future__ import annotations

from .framework import Pass, PassError, Pipeline, Step, recording

__all__ = ["Pass", "PassError", "Pipeline", "Step", "recording"]
