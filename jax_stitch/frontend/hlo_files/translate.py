"""Between HLO and StableHLO, and out of serialized forms, by what jaxlib has for it, in a child process.

Some programs end the process that XLA reads them in.
"""

from __future__ import annotations

import itertools
from typing import Any

import jaxlib

import hlo_parser
from hlo_parser import COLLECTIVES, Module
from jax_stitch.frontend.capture.errors import HloFileError
from jax_stitch.frontend.hlo_files.content import WHAT, Content, Kind
from jax_stitch.util.child import ChildDied, ChildFailed, Keeper, encode
from jax_stitch.util.formatting import one_line, shorten

_TIMEOUT = 600.0
"""Seconds that XLA has for a program, however large."""

_SHOWN = 200
"""Characters of the process's last words that a message has."""

TRANSLATOR = Keeper("jax_stitch.frontend.hlo_files.translator", {"JAX_PLATFORMS": "cpu"})

_HANDED_ON = frozenset({*COLLECTIVES, "send", "recv", "infeed", "outfeed", "custom-call"})
"""Operations that XLA's translators know in some of their forms."""


def hlo_texts(content: Content) -> list[tuple[str, str]]:
    """Return the name and the HLO text of each module in a proto or in StableHLO. Raises HloFileError."""
    is_proto = content.kind is Kind.PROTO
    reply, data = _asked("proto" if is_proto else "mlir", content.data, content.where)
    if reply["ok"]:
        ends = list(itertools.accumulate(reply["sizes"], initial=0))
        texts = [data[a:b].decode("utf-8", "surrogateescape") for a, b in itertools.pairwise(ends)]
        return list(zip(reply["names"], texts, strict=True))
    if not is_proto:
        raise HloFileError(
            f"{content.where} is not StableHLO that this jaxlib ({jaxlib.__version__}) reads: {reply['reason']}\n"
            "mend it, or write it again: jax.jit(f).lower(...).as_text(), or jax.export"
        )
    what = f"give {WHAT}"
    if b"ML\xefR" in content.data:  # MLIR inside something else, such as what jax.export writes.
        what = "if jax.export wrote it, give its program alone: jax.export.deserialize(data).mlir_module_serialized"
    raise HloFileError(f"{content.where} is binary, but no HLO proto: {reply['reason']}\n{what}")


def stablehlo_of(module: Module, where: str) -> bytes:
    """Return a module as StableHLO, in bytecode of this version of jaxlib.

    Its ``main`` takes and returns arrays alone, of tuples the elements. Raises HloFileError where XLA has no StableHLO
    for an operation.
    """
    odd = next((i.name for c in module.computations for i in c if _is_handed_on(i.opcode)), None)
    advice = f"; it may be {odd}: take that out if it is not what you ask about" if odd is not None else ""
    reply, bytecode = _asked("stablehlo", str(module).encode("utf-8", "surrogateescape"), where, advice)
    if not reply["ok"]:
        strange = next((str(u) for u in hlo_parser.unknown(module)), "")
        raise HloFileError(
            f"{where}: XLA cannot take it as a program: {strange or reply['reason']}\n"
            "mend it there, or dump it again with this version of XLA, from before its passes (before_optimizations)"
        )
    unknown = [type_ for type_ in reply["types"] if "?" in type_ or "tensor" not in type_]
    if unknown:
        raise HloFileError(f"{where}: it takes or returns {unknown[0]}; give a module of arrays of fixed shapes")
    return bytecode


def _is_handed_on(opcode: str) -> bool:
    return opcode.removesuffix("-start") in _HANDED_ON


def _asked(wanted: str, data: bytes, where: str, advice: str = "") -> tuple[dict[str, Any], bytes]:
    """Return the child's reply. Raises HloFileError where it gives none."""
    try:
        return TRANSLATOR.ask(encode({"wanted": wanted}, data), _TIMEOUT)
    except ChildDied as died:
        status, *words = str(died).strip().splitlines()
        said = f"{status.removesuffix(':')}{''.join(': ' + w.rpartition('] ')[2] for w in words[-1:])}"
        raise HloFileError(
            f"{where}: XLA's reader crashes on it, in a process of its own, which {shorten(one_line(said), _SHOWN)}\n"
            f"dump it again with this version of XLA, from before its passes (before_optimizations){advice}"
        ) from None
    except ChildFailed as failure:
        raise HloFileError(f"{where}: XLA's reader, a process of its own, {failure}") from None
