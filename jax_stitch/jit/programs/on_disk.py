"""Rebuilt programs on disk."""

from __future__ import annotations

from dataclasses import replace

from jax_stitch.backend.compile import load_host
from jax_stitch.backend.launch import host
from jax_stitch.jit.programs.program import RebuiltProgram
from jax_stitch.util import store

_KIND = "programs"


def load(name: str) -> RebuiltProgram | None:
    """Return the program of that name, if all its kernels are there too."""
    data = store.read(_KIND, name)
    if data is None:
        return None
    program = RebuiltProgram.from_bytes(data)
    held = []
    for kernel, id in program.kernels:
        loaded = load_host(kernel, id)
        if loaded is None:
            return None
        host.register(loaded)
        held.append(loaded)
    return replace(program, held=tuple(held))


def keep(name: str, program: RebuiltProgram) -> None:
    """Store a program, for ``load`` in whatever process; not one with arrays of its own."""
    if not program.constants:
        store.write(_KIND, name, program.to_bytes())


def forget(name: str) -> None:
    """Remove a program, which is then planned anew; its compiled kernels stay."""
    store.remove(_KIND, name)
