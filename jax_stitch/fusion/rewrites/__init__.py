"""Graphs rewritten before they are planned, so that more of them can be part of a kernel."""
