"""The program that a stitched function becomes, and the JAX operation that runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from jax_stitch.frontend.capture.program import ALIASING, is_token
from jax_stitch.jit.programs.kernel_names import name_kernels
from jax_stitch.util.child import decode, encode
from jax_stitch.util.jax_names import Primitive, func, ir, mlir, stablehlo
from jax_stitch.util.python_calls import renumber
from jax_stitch.util.tracebacks import hide_frames

Types = tuple[tuple[tuple[tuple[int, ...], str], ...], tuple[tuple[tuple[int, ...], str], ...]]
"""Shape and element type of each parameter, and of each result."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RebuiltProgram:
    """A module whose ``main`` takes the arrays of a capture's ``parameters`` and returns those of its ``results``;
    before them tokens, where it has effects that have an order.

    Calls kernels for the CPU by id: they have to be loaded and registered before the program runs. Kernels for a GPU
    are part of the module.
    """

    name: str
    module: bytes = field(repr=False)
    """StableHLO as MLIR bytecode of this version of jaxlib; no addresses, so the same in every process."""
    kernels: tuple[tuple[str, str], ...]
    """Name and id of each kernel for the CPU."""
    launches: int = 0
    """Of stitched kernels in a call, in place of so many of XLA's (``replaced``)."""
    replaced: int = 0
    callbacks: tuple[int, ...] = ()
    """Of each Python function that ``module`` calls, the number that the capture has for it."""
    held: tuple[Any, ...] = field(default=(), repr=False)
    """The kernels for the CPU themselves, which are unloaded when nobody has them."""
    constants: tuple[Any, ...] = ()
    """Arrays that JAX made leading arguments of ``main`` (with ``jax_use_simplified_jaxpr_constants``)."""
    types: Types | None = None
    """Of the capture's ``parameters`` and ``results``."""
    place: str = ""
    """Where the function is defined that it was made for, as in the capture."""
    is_foreign: bool = False
    """True where that is another function, which computes the same: its lines and scopes are then nobody's."""

    def for_function(self, place: str) -> RebuiltProgram:
        """Return the program as that of the function that is defined there."""
        return self if place == self.place else replace(self, is_foreign=True)

    def __call__(
        self,
        arrays: Sequence[Any],
        results: Sequence[jax.ShapeDtypeStruct],
        callbacks: Sequence[Callable[..., Any]] = (),
        effects: frozenset[Any] = frozenset(),
    ) -> list[Any]:
        """Return the results, of these types; to be traced by JAX. ``callbacks`` and ``effects`` are the capture's."""
        called = tuple(callbacks[number] for number in self.callbacks)
        program_p = _calling_program_p if called or effects else _program_p
        return program_p.bind(
            *self.constants, *arrays, program=self, results=tuple(results), callbacks=called, kept=effects
        )

    def to_bytes(self) -> bytes:
        """Return all but ``constants`` as data."""
        counts = {"launches": self.launches, "replaced": self.replaced}
        lists = {"kernels": self.kernels, "callbacks": self.callbacks, "types": self.types}
        return encode({"name": self.name, "place": self.place, **lists, **counts}, self.module)

    @classmethod
    def from_bytes(cls, data: bytes) -> RebuiltProgram:
        """Return a program from the data of ``to_bytes``."""
        rest = memoryview(data)

        def read(size: int) -> bytes:
            nonlocal rest
            part, rest = rest[:size], rest[size:]
            return bytes(part)

        header, module = decode(read)
        kernels = tuple((name, id) for name, id in header["kernels"])
        callbacks, types = tuple(header["callbacks"]), None
        if header["types"] is not None:
            parameters, results = (tuple((tuple(dims), dtype) for dims, dtype in of) for of in header["types"])
            types = parameters, results
        counts, place = (header["launches"], header["replaced"]), header["place"]
        return cls(header["name"], module, kernels, *counts, callbacks, types=types, place=place)


def types_of(parameters: Sequence[jax.ShapeDtypeStruct], results: Sequence[jax.ShapeDtypeStruct]) -> Types:
    """Return the types as they are kept."""
    given, returned = (tuple((tuple(a.shape), a.dtype.name) for a in of) for of in (parameters, results))
    return given, returned


def _abstract(
    *_: Any, results: tuple[jax.ShapeDtypeStruct, ...], kept: frozenset[Any], **__: Any
) -> tuple[list[Any], set[Any]]:
    return [jax.core.ShapedArray(result.shape, result.dtype) for result in results], set(kept)


def _lower(
    ctx: Any, *arrays: Any, program: RebuiltProgram, callbacks: tuple[Callable[..., Any], ...], **_: Any
) -> list[Any]:
    around, module = ctx.module_context, ir.Module.parse(program.module)
    renumber(module, len(around.host_callbacks))
    name_kernels(module.operation, is_foreign=program.is_foreign)
    _keep_nothing(module)
    if program.held:  # It may be compiled when nobody has the function any more.
        around.add_keepalive(_Holding(program.held))
    for function in callbacks:
        around.add_host_callback(function)
    (types,) = (list(f.type.results) for f in module.body.operations if f.sym_name.value == "main")
    count = sum(map(is_token, types))
    name = mlir.merge_mlir_modules(around.module, program.name, module, dst_symtab=around.symbol_table)
    # The program may have fewer kinds of ordered effects than the function, so all of its go in one order.
    tokens = dict(ctx.tokens_in.items())
    before = [_joined(list(tokens.values()))] * count if count else []
    called = list(func.CallOp(types, ir.FlatSymbolRefAttr.get(name), [*before, *arrays]).results)
    if tokens:
        ctx.set_tokens_out(mlir.TokenSet(_after(tokens, called[:count]) if count else tokens))
    return called[count:]


def _keep_nothing(module: ir.Module) -> None:
    """Let no part of a program donate: that is for the whole program to say."""
    for function in module.body.operations:
        if "arg_attrs" in function.attributes:
            kept = [{a.name: a.attr for a in of if a.name != ALIASING} for of in function.arg_attrs]
            function.arg_attrs = [ir.DictAttr.get(of) for of in kept]


class _Holding:
    """What a lowered program has of its kernels; nothing, where it is written to a file with its executable."""

    def __init__(self, kernels: Sequence[Any]) -> None:
        self.kernels = kernels

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return object, ()


def _joined(tokens: Sequence[Any]) -> Any:
    return tokens[0] if len(tokens) == 1 else stablehlo.after_all(tokens)


def _after(before: dict[Any, Any], program: Sequence[Any]) -> dict[Any, Any]:
    """Return a token for each effect, that waits for the program. No two are one value: XLA:CPU aborts where results
    are.
    """
    joined = _joined(program)
    first, *others = before
    return {first: joined} | {effect: stablehlo.after_all([joined, before[effect]]) for effect in others}


def _operation(name: str, *, cacheable: bool) -> Primitive:
    made = Primitive(name)
    made.multiple_results = True
    made.def_effectful_abstract_eval(_abstract)
    mlir.register_lowering(made, _lower, cacheable=cacheable)
    return made


_program_p = _operation("stitched_program", cacheable=True)
"""Put into a module once, however often it is called."""
_calling_program_p = _operation("stitched_calling_program", cacheable=False)
"""One that calls Python: each call of a function has a number of its own."""
hide_frames(__file__)
