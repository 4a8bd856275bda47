"""The public functions, on whatever JAX is here.

On a version that the tests have run with they are those of ``api.py``, ``hlo.py`` and ``inspect/report/``. On a newer
one a small program is tried first (``canary.py``), when a function is first used (``later.py``). Where that fails, or a
name is missing that we need, functions run as plain ``jax.jit`` (``plain.py``). ``report`` says what is known of the
JAX that is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax_stitch.api import stitch, stitch_jit
    from jax_stitch.hlo import plan_hlo, stitch_hlo
    from jax_stitch.inspect.report.compare import compare
    from jax_stitch.jit.other_jax.canary import report

__all__ = ["compare", "plan_hlo", "report", "stitch", "stitch_hlo", "stitch_jit"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "report":
            from jax_stitch.jit.other_jax.canary import report

            return report
        from jax_stitch.jit.other_jax.choice import public

        value = globals()[name] = public(name)
        return value
