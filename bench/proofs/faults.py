"""Faults planted in a kernel's PTX, as controls: a verifier that finds none of them proves nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bench.proofs.ptx import NOTHING, Instruction, Kernel

SHOWN_BY_VERIFIER = (
    "a barrier taken out",
    "a barrier for some threads",
    "blocks that do the same",
    "one place for all",
)
SHOWN_BY_STRUCTURE = ("a barrier for some threads", "a read past the caches")

_FIRST_WARP = """\
	.reg .pred %p99999;
	.reg .b32 %r99999;
	mov.u32 %r99999, %tid.x;
	setp.lt.u32 %p99999, %r99999, 32;
"""


def planted(text: str) -> Iterator[tuple[str, str]]:
    """Name of the fault and text, for each that the kernel has a place for; of barriers each one."""
    kernel = Kernel(text)
    lines = text.split("\n")
    for barrier in [i for i in kernel.instructions if i.opcode.startswith("bar.sync")]:
        k = barrier.line
        yield "a barrier taken out", "\n".join([*lines[:k], *lines[k + 1 :]])
        yield (
            "a barrier for some threads",
            "\n".join([*lines[:k], "\t{", f"{_FIRST_WARP}\t@%p99999 bar.sync 0;", "\t}", *lines[k + 1 :]]),
        )
    if "%ctaid.x" in text:
        yield "blocks that do the same", re.sub(r"mov\.u32(\s+%r\d+), %ctaid\.x;", r"mov.b32\1, 0;", text)
    yield from _one_place(kernel, lines)
    yield from _stale(kernel, lines)


def _one_place(kernel: Kernel, lines: list[str]) -> Iterator[tuple[str, str]]:
    """The first store that goes to the start of its buffer, whichever thread stores."""
    bases = [i for i in kernel.instructions if i.opcode.startswith("cvta.to.global")]
    for store in (i for i in kernel.instructions if i.opcode.startswith("st.global")):
        for base in bases:
            if base.line < store.line and _origin(kernel, base) == kernel.accessed(store):
                changed = lines[store.line].replace(f"[{store.address}]", f"[{base.results[0]}]")
                if changed != lines[store.line]:
                    yield "one place for all", "\n".join([*lines[: store.line], changed, *lines[store.line + 1 :]])
                    return


def _origin(kernel: Kernel, base: Instruction) -> frozenset[str]:
    """The parameter that a base address is of: that of the load before it."""
    loads = [i for i in kernel.instructions if i.opcode.startswith("ld.param") and i.results == base.sources]
    return frozenset(p for i in loads for p in kernel.parameters if p in i.address)


def _stale(kernel: Kernel, lines: list[str]) -> Iterator[tuple[str, str]]:
    """The first coherent read of what the kernel writes."""
    stores = [i for i in kernel.instructions if i.opcode.startswith("st.global")]
    written = NOTHING.union(*map(kernel.accessed, stores))
    for read in kernel.instructions:
        if re.match(r"ld\.global\.(v\d\.)?[bfsu]\d", read.opcode) and kernel.accessed(read) & written:
            changed = lines[read.line].replace("ld.global.", "ld.global.nc.", 1)
            yield "a read past the caches", "\n".join([*lines[: read.line], changed, *lines[read.line + 1 :]])
            return
