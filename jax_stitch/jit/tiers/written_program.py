"""A traced program in bytes, which are the same for two only where JAX would lower both to the same.

To lower a program, only to find under its text what an earlier process kept of it, takes as long as all else that the
first call of a later process needs. What is written here is the jaxpr: its operations, their parameters, types and
constants, but not where in the user's files they come from. Of what is not known to be the same wherever it looks the
same, a Python function or an operation of another library, there is no such writing.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import FunctionType, MappingProxyType
from typing import Any

import jax
import numpy as np

from jax_stitch.jit.primitive import stitched_p
from jax_stitch.util.jax_names import ClosedJaxpr, Jaxpr, Literal, Primitive

_HOMES = (
    "jax._src.lax",
    "jax._src.lax.lax",
    "jax._src.lax.linalg",
    "jax._src.lax.control_flow",
    "jax._src.pjit",
    "jax._src.ad_util",
    "jax._src.dispatch",
    "jax._src.random",
    "jax._src.random.prng",
    "jax._src.random.threefry2x32",
    "jax._src.prng",
    "jax._src.custom_derivatives",
    "jax._src.ad_checkpoint",
)
"""Modules where JAX's own operations are, in some version: names alone say nothing, since anybody may give them."""
_ATTRIBUTES = {"remat2": "remat_p", "checkpoint": "remat_p", "add_any": "add_jaxvals_p"}
"""Of these the operations whose attribute there is another than their name."""
_FUNCTIONS = frozenset({"jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees", "policy", "computation"})
"""Parameters that an operation is differentiated by, or was traced from: lowered, they say nothing."""
_OPTIONS = frozenset(
    {"static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused", "inline"}
)
"""Of ``jax.jit``: what is written says all about them. Others are of shardings and compilers."""


class _NotWritten(Exception):
    """There is something in a program that is not known to be the same wherever it looks the same."""


def written(traced: jax.stages.Traced, arguments: Sequence[Any], jit_options: Mapping[str, Any]) -> bytes | None:
    """Return the program of a call of these arguments under ``jax.jit`` with these options; None where it has no
    writing.
    """
    if traced.jaxpr.effects or not _OPTIONS.issuperset(jit_options) or not all(map(_is_on_one_device, arguments)):
        return None
    donated = [info.donated for info in jax.tree.leaves(traced.args_info, is_leaf=lambda x: hasattr(x, "donated"))]
    writer = _Writer()
    try:
        writer.value((traced.fun_name, donated, bool(jit_options.get("keep_unused")), traced.jaxpr))
    except _NotWritten:
        return None
    return "\n".join(writer.words).encode()


def _is_on_one_device(argument: Any) -> bool:
    return not isinstance(argument, jax.Array) or len(argument.sharding.device_set) == 1


class _Writer:
    """The words of a program. Each object is written once; there may be many of the same types and inner programs."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[int, int] = {}
        self._known: dict[int, str] = {}
        self._seen: list[Any] = []
        """What has a number or a word: as long as it lives, nothing else has its id."""

    def value(self, value: Any) -> None:
        """Write a parameter, a constant, or a program. Raise ``_NotWritten``."""
        write = _WRITERS.get(type(value))
        if write is not None:
            write(self, value)
        elif isinstance(value, ClosedJaxpr):
            self._once(value, self._closed)
        elif isinstance(value, Jaxpr):
            self._once(value, self._jaxpr)
        elif isinstance(value, (jax.Array, np.ndarray)) or type(value).__name__ == "TypedNdArray":
            self.array(value)
        else:
            self.words.append(_word(value))

    def several(self, values: Any) -> None:
        self.words.append(f"{type(values).__name__} {len(values)}")
        for value in values:
            self.value(value)

    def by_name(self, values: Mapping[str, Any]) -> None:
        self.words.append(f"by name {len(values)}")
        for name in sorted(values):
            self.words.append(repr(name))
            self.value(values[name])

    def array(self, array: Any) -> None:
        """Write a constant."""
        if not _is_on_one_device(array):
            raise _NotWritten
        try:
            held = np.asarray(array)
        except TypeError:
            raise _NotWritten from None
        if held.dtype.hasobject:
            raise _NotWritten
        is_weak = bool(getattr(array, "weak_type", False))
        self.words.append(f"{type(array).__name__} {held.dtype} {held.shape} {is_weak} {_bits(held)}")

    def _once(self, value: Any, write: Callable[[Any], None]) -> None:
        number = self._numbers.get(id(value))
        if number is None:
            write(value)
            number = self._numbers[id(value)] = len(self._seen)  # In jax 0.11 a program with constants is one object.
            self._seen.append(value)
        self.words.append(f"program {number}")

    def _closed(self, program: ClosedJaxpr) -> None:
        self.several(program.consts)
        self._once(program.jaxpr, self._jaxpr)

    def _jaxpr(self, jaxpr: Jaxpr) -> None:
        if jaxpr.effects:
            raise _NotWritten
        numbers: dict[Any, int] = {}
        words = self.words
        for variable in (*jaxpr.constvars, *jaxpr.invars):
            words.append(f"{numbers.setdefault(variable, len(numbers))} {self._type(variable.aval)}")
        words.append("do")
        for equation in jaxpr.eqns:
            words.append(f"{_own_name(equation.primitive)} {self._context(equation.ctx)}")
            self._operands(equation.invars, numbers)
            for name, value in sorted(equation.params.items()):
                if name in _FUNCTIONS or (equation.primitive is stitched_p and name == "origin"):
                    continue
                words.append(name)
                self.value(value)
            for variable in equation.outvars:
                words.append(f"{numbers.setdefault(variable, len(numbers))} {self._type(variable.aval)}")
        words.append("return")
        self._operands(jaxpr.outvars, numbers)

    def _operands(self, operands: Sequence[Any], numbers: Mapping[Any, int]) -> None:
        for operand in operands:
            if isinstance(operand, Literal):
                self.words.append(f"literal {self._type(operand.aval)}")
                self.value(operand.val)
            else:
                self.words.append(str(numbers[operand]))

    def _type(self, aval: Any) -> str:
        """Return the number of a type: types are shared between variables."""
        word = self._known.get(id(aval))
        if word is None:
            word = self._known[id(aval)] = _type_word(aval)
            self._seen.append(aval)
        return word

    def _context(self, context: Any) -> str:
        """Return what JAX notes of where an operation was traced."""
        word = self._known.get(id(context))
        if word is None:
            names = [name for name in type(context).__slots__ if name != "__weakref__"]
            word = " ".join(f"{name} {_word(getattr(context, name, None))}" for name in names)
            self._known[id(context)] = word
            self._seen.append(context)
        return word


def _bits(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def _type_word(aval: Any) -> str:
    if type(aval) is not jax.core.ShapedArray or not aval.sharding.mesh.empty:
        raise _NotWritten
    manual = getattr(aval, "manual_axis_type", None)
    if any(getattr(manual, name, ()) for name in ("varying", "unreduced", "reduced")):
        raise _NotWritten
    return f"{_word(aval.dtype)} {_shape(aval.shape)} {aval.weak_type} {aval.memory_space}"


def _shape(dims: Sequence[Any]) -> str:
    if not all(type(d) is int for d in dims):  # Dimensions of shape polymorphism are expressions.
        raise _NotWritten
    return "x".join(map(str, dims))


def _own_name(primitive: Primitive) -> str:
    """Return the name of one of JAX's own operations, or of ours."""
    name = _own_names.get(primitive)
    if name is None:
        attribute = _ATTRIBUTES.get(primitive.name, primitive.name.replace("-", "_") + "_p")
        homes = (sys.modules.get(home) for home in _HOMES)
        if primitive is not stitched_p and not any(getattr(home, attribute, None) is primitive for home in homes):
            raise _NotWritten
        name = _own_names[primitive] = primitive.name
    return name


_own_names: dict[Primitive, str] = {}


def _word(value: Any) -> str:
    """Return a value that is one word."""
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        return f"{kind.__name__} {value!r}"
    if isinstance(value, Enum):
        return f"{_home(kind)} {value.name}"
    if kind is tuple:
        return f"({', '.join(map(_word, value))})"
    if kind is frozenset:
        return f"{{{', '.join(sorted(map(_word, value)))}}}"
    if isinstance(value, np.dtype):
        return f"dtype {value}" if not value.hasobject else _refuse()
    if isinstance(value, np.generic):
        return f"{value.dtype} {value.tobytes().hex()}" if not value.dtype.hasobject else _refuse()
    if isinstance(value, int):  # With a type of JAX's, as that of a literal says.
        return f"{_home(kind)} {int(value)}"
    if isinstance(value, (float, complex)):  # With the sign of a NaN.
        bits = struct.pack("<dd", value.real, value.imag).hex()
        return f"{kind.__name__ if kind in (float, complex) else _home(kind)} {bits}"
    return _home(value) if isinstance(value, type) else _of_jax(value)


def _of_jax(value: Any) -> str:
    """Return values of JAX's own types, which are named by what they hold, and its functions."""
    kind = type(value)
    if kind.__name__ == "PjitFunction":
        value = value.__wrapped__
    if isinstance(value, FunctionType):
        return _home(value) if value.__closure__ is None and value.__name__ != "<lambda>" else _refuse()
    home = _home(kind)
    match kind.__name__:
        case "Mesh" | "AbstractMesh":
            return "no mesh" if value.empty else _refuse()
        case "UnspecifiedValue":
            return "unspecified"
        case "KeyTy":
            return f"{home} {_word(value._impl)}"
        case "ArrayCopySemantics":
            return f"{home} {value.name}"
        case "FTTuple":  # How a loop's values are shared out, since jax 0.11.
            return f"{home} {_word(tuple(value.elts))}"
        case "FTPyTree":
            return f"{home} {_word(tuple(value.xs))}"
        case "FTSingleton" | "FTFiltered":
            return f"{home} {_word(value.val)}"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{home} {' '.join(map(_word, value))}"
    fields = getattr(value, "__dataclass_fields__", None)
    return _refuse() if fields is None else f"{home} {' '.join(_word(getattr(value, name)) for name in fields)}"


def _home(named: Any) -> str:
    """Return where a class or function of JAX or NumPy is defined: the same wherever their versions are."""
    module = named.__module__ or ""
    return f"{module}.{named.__qualname__}" if module.startswith(("jax.", "jaxlib", "numpy")) else _refuse()


def _refuse() -> str:
    raise _NotWritten


_WRITERS: Mapping[type, Callable[[_Writer, Any], None]] = MappingProxyType(
    {
        tuple: _Writer.several,
        list: _Writer.several,
        dict: _Writer.by_name,
    }
)
