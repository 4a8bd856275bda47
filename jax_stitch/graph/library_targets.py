"""Names of the calls in whose place other passes of XLA have operations that can be read."""

from __future__ import annotations

HIDING = ("__cublas$", "__cudnn$", "__cub$", "__onednn$")
"""How they begin."""


def may_hide_operations(text: str) -> bool:
    """Return whether a program has such calls: ``library_calls`` reads some of them."""
    return any(f'custom_call_target="{target}' in text for target in HIDING)
