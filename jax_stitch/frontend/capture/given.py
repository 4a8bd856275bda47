"""Programs that were given as HLO, inside JAX's own: an operation by which ``capture`` knows them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from jax_stitch.util.jax_names import ClosedJaxpr, Primitive, func, ir, jaxprs_in_params, mlir


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Given:
    """A module that came from a file. Called with arrays, it is one operation of JAX that XLA optimises with all around
    it.

    Where a function is nothing but this operation and there is a ``text``, this optimized HLO is planned as it is, and
    XLA's own program is ``default_text``.
    """

    name: str
    module: bytes = field(repr=False)
    """StableHLO, as bytecode of this version of jaxlib; its ``main`` takes and returns arrays."""
    results: tuple[jax.ShapeDtypeStruct, ...]
    text: str | None = field(default=None, repr=False)
    default_text: str | None = field(default=None, repr=False)

    def __call__(self, *arrays: Any) -> list[Any]:
        """Return what ``main`` returns."""
        return _given_p.bind(*arrays, given=self)


def given_text(jaxpr: ClosedJaxpr) -> Given | None:
    """Return the program that a function is, all of it, where that has a text to be planned as it is."""
    inner = jaxpr.jaxpr
    while len(inner.eqns) == 1:
        (equation,) = inner.eqns
        if equation.invars != inner.invars or equation.outvars != inner.outvars:
            return None
        if equation.primitive is _given_p:
            given = equation.params["given"]
            return given if given.text is not None else None
        bodies = list(jaxprs_in_params(equation.params))
        if len(bodies) != 1 or bodies[0].constvars:
            return None
        inner = bodies[0]
    return None


_given_p = Primitive("hlo_program")
_given_p.multiple_results = True


@_given_p.def_abstract_eval
def _abstract(*_: Any, given: Given) -> Sequence[Any]:
    return [jax.core.ShapedArray(r.shape, r.dtype) for r in given.results]


@_given_p.def_impl
def _impl(*arrays: Any, given: Given) -> list[Any]:
    return jax.jit(given)(*arrays)


def _lower(ctx: Any, *arrays: Any, given: Given) -> list[Any]:
    around, module = ctx.module_context, ir.Module.parse(given.module)
    (main,) = (f for f in module.body.operations if ir.StringAttr(f.attributes["sym_name"]).value == "main")
    for name in ("arg_attrs", "res_attrs"):  # Shardings and aliases of a whole program, which it is no more.
        if name in main.attributes:
            del main.attributes[name]
    types = list(main.type.results)
    name = mlir.merge_mlir_modules(around.module, given.name, module, dst_symtab=around.symbol_table)
    return list(func.CallOp(types, ir.FlatSymbolRefAttr.get(name), list(arrays)).results)


mlir.register_lowering(_given_p, _lower)
