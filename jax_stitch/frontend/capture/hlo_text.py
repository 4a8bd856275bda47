"""Optimized HLO as text, complete."""

from __future__ import annotations

from typing import Any

from jax_stitch.util.jax_names import hlo


def full_text(executable: Any) -> str:
    """Return the HLO module of a compiled executable, with every constant written out.

    ``Compiled.as_text()`` prints constants of more than a few elements as ``constant({...})``, which loses them.
    """
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    (module,) = executable.hlo_modules()
    return str(module.to_string(options))
