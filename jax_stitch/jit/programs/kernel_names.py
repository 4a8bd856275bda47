"""The names that calls of kernels have in profiles.

XLA calls an instruction by the last part of its operation's name in JAX, and a profile on a CPU shows that name alone.
JAX's name for all calls of kernels ends in "ffi_call"; the part before it is the kernel's, with the user's lines.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jax_stitch.backend.launch.choice import TARGETS
from jax_stitch.util.jax_names import ir

_OF_ALL = "/ffi_call"
_LINES = re.compile(r"\([^()]*\)")


@contextmanager
def kernels_named() -> Iterator[None]:
    """Name the kernels that are called by what is lowered meanwhile into the block that JAX writes."""
    block = ir.InsertionPoint.current.block
    before = len(block.operations)
    yield
    for operation in itertools.islice(block.operations, before, None):
        name_kernels(operation.operation, is_foreign=False)


def name_kernels(around: ir.Operation, *, is_foreign: bool) -> None:
    """Name each call of a kernel in a StableHLO operation, such as a module, after the kernel.

    ``is_foreign``: it was made for another function that computes the same. Then kernels lose the lines of its
    source and its scopes, and all other operations their names.
    """

    def visit(operation: Any) -> ir.WalkResult:
        location = operation.location
        is_kernel = (
            operation.name == "stablehlo.custom_call" and operation.attributes["call_target_name"].value in TARGETS
        )
        if is_kernel and hasattr(location, "name_str"):
            name = location.name_str.removesuffix(_OF_ALL)
            if is_foreign:
                operation.location = ir.Location.name(_LINES.sub("", name).rpartition("/")[2])
            else:
                operation.location = ir.Location.name(name, childLoc=location.child_loc)
        elif is_foreign:
            operation.location = ir.Location.unknown()
        return ir.WalkResult.ADVANCE

    with around.context, ir.Location.unknown():
        around.walk(visit)
