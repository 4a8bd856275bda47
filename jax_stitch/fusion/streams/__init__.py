"""Reductions over one axis and what they are made of, as a loop over tiles of that axis (online reductions)."""
