"""Cases tried in a child process, which may die or hang of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

import hlo_parser
from hlo_parser import ArrayShape, Computation, Module, TupleShape
from jax_stitch.jit.debug.case import Case, pack, unpack
from jax_stitch.jit.debug.outcome import DIED, HUNG, Outcome, outcome
from jax_stitch.jit.debug.plain import run_plain
from jax_stitch.jit.debug.reports import Settings
from jax_stitch.util.child import ChildDied, ChildFailed, Keeper, encode, serve

LARGEST = 1 << 28
"""Bytes of intermediate values that are worth keeping."""


class Attempts:
    """Tries cases, each for so many seconds, in a process that is replaced when it does not survive one."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.tried: dict[str, Outcome] = {}
        self._keeper = Keeper("jax_stitch.jit.debug.attempt", {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"})

    def outcome(self, case: Case) -> Outcome:
        """Return what becomes of a case. The same program is tried once."""
        key = hashlib.sha256(str(case.module).encode()).hexdigest()
        if key not in self.tried:
            self.tried[key] = self._outcome(case)
        return self.tried[key]

    def _outcome(self, case: Case) -> Outcome:
        try:
            reply, _ = self._keeper.ask(_request("outcome", case), self.timeout)
        except ChildDied as death:
            return Outcome(DIED, "", str(death))
        except ChildFailed as failure:
            return Outcome(HUNG, "", str(failure))
        return Outcome(reply["kind"], reply["what"], reply["details"])

    def values(self, case: Case) -> dict[str, np.ndarray]:
        """Return what XLA alone computes at each instruction of the entry; nothing if that cannot be had."""
        try:
            reply, data = self._keeper.ask(_request("values", case), self.timeout)
        except ChildFailed:
            return {}
        return unpack(case.module, data) if reply["kind"] == "values" else {}

    def close(self) -> None:
        """End the process."""
        self._keeper.shut_down()


def _request(task: str, case: Case) -> bytes:
    header = {"task": task, "text": str(case.module), "settings": asdict(case.settings)}
    names = {p.name for p in case.module.entry.parameters}
    return encode(header, pack(case.module, {n: v for n, v in case.values.items() if n in names}))


def answer(header: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the child's reply to ``Attempts``."""
    try:
        module = hlo_parser.parse(header["text"])
        case = Case(module, Settings(**header["settings"]), unpack(module, data))
        if header["task"] == "values":
            return {"kind": "values"}, pack(module, every_value(case))
        return asdict(outcome(case)), b""
    except Exception as error:  # The parent takes it for a program that is no good.
        return {"kind": "invalid", "what": type(error).__name__, "details": str(error)}, b""


def every_value(case: Case) -> Mapping[str, np.ndarray]:
    """Return the value of each instruction of the entry that is an array."""
    entry = case.module.entry
    arrays = [i for i in entry if isinstance(i.shape, ArrayShape) and i.opcode not in ("parameter", "constant")]
    if sum(i.shape.bytes for i in arrays if isinstance(i.shape, ArrayShape)) > LARGEST or not arrays:
        return {}
    tuple_name = hlo_parser.rewrite.fresh_name("every_value", entry)
    root = hlo_parser.Instruction(
        tuple_name, "tuple", TupleShape(tuple(i.shape for i in arrays)), tuple(i.name for i in arrays), is_root=True
    )
    instructions = (*(replace(i, is_root=False) for i in entry), root)
    module = _with_entry(case.module, replace(entry, instructions=instructions))
    results = run_plain(module, case.arguments())
    return dict(zip((i.name for i in arrays), results, strict=True))


def _with_entry(module: Module, entry: Computation) -> Module:
    return hlo_parser.replace_computation(module, entry)


if __name__ == "__main__":
    serve(answer, 600.0)
