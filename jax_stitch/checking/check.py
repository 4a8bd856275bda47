"""One kernel through the checking mode."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_stitch.backend.launch.element_types import byte_size, numpy_dtype
from jax_stitch.checking.findings import BufferTraffic, Checked, Finding, Findings, Kind
from jax_stitch.checking.lines import lines_of
from jax_stitch.checking.native import CBuffer, CFinding, CLaunch, CReport, compile_checked

if TYPE_CHECKING:
    from jax_stitch.emit import KernelSource

_MOST_FINDINGS = 256
_SHARED = -2
_ONE_AT_A_TIME = threading.Lock()


def check(source: KernelSource, arrays: Sequence[Any], blocks: Sequence[int] | None = None) -> Checked:
    """Run a kernel thread by thread between its barriers, with the launch dimensions it has on a GPU.

    ``arrays`` are its inputs; None stands for zeros, which take room only where they are read. ``blocks`` are those to
    run, by default all; only a kernel of one phase can do with a few, and of a cluster all have to run, one after
    another. The outputs returned hold what they wrote. An output that is written in place is in the input's memory.

    Raises ``ValueError`` where the arrays are not the kernel's, or blocks of a cluster are missing;
    ``KernelCompileError`` where the text is not C++.
    """
    _match(source, arrays)
    chosen = range(source.grid) if blocks is None else blocks
    if source.phases and len(chosen) != source.grid:
        raise ValueError(f"{source.name} has phases that wait for each other: all of its blocks have to run")
    size = source.cluster
    clusters = [sorted(chosen[k : k + size]) for k in range(0, len(chosen), size)]
    if any(c[0] % size or c != list(range(c[0], c[0] + size)) for c in clusters):
        raise ValueError(f"{source.name} has clusters of {size} blocks: all blocks of each have to run")
    kernel = compile_checked(source)
    names, buffers, outputs, alive = _buffers(source, arrays)
    numbers = (ctypes.c_int64 * len(chosen))(*chosen)
    slots = (CFinding * _MOST_FINDINGS)()
    report = CReport(findings=slots, most_findings=_MOST_FINDINGS)
    launch = CLaunch(
        buffers=buffers,
        buffer_count=len(names),
        threads=source.block,
        grid=source.grid,
        shared_bytes=source.shared_bytes,
        blocks=numbers,
        block_count=len(chosen),
        cluster=source.cluster,
    )
    with _ONE_AT_A_TIME:
        kernel.launch(launch, report)
    del alive
    raw = slots[: report.finding_count]
    lines = lines_of(kernel.content, [f.place for f in raw])
    text = source.text.splitlines()
    sizes = _element_sizes(source)
    faults = tuple(_finding(source.name, f, line, text, names, sizes) for f, line in zip(raw, lines, strict=True))
    traffic = tuple(_traffic(name, buffers[k].traffic) for k, name in enumerate(names))
    extra = report.shared_wavefronts - report.least_shared_wavefronts
    findings = Findings(
        source.name, faults, traffic, report.shared_wavefronts, extra, len(chosen), bool(report.stopped)
    )
    return Checked(findings, tuple(outputs))


def _match(source: KernelSource, arrays: Sequence[Any]) -> None:
    if len(arrays) != len(source.inputs):
        raise ValueError(f"{source.name} reads {len(source.inputs)} arrays, and {len(arrays)} were given")
    for k, (array, tensor) in enumerate(zip(arrays, source.inputs, strict=True)):
        if array is not None and (array.shape != tensor.dims or array.dtype != numpy_dtype(tensor)):
            raise ValueError(f"Input {k} of {source.name} is {tensor}, not {array.dtype}{list(array.shape)}")


def _buffers(source: KernelSource, arrays: Sequence[Any]) -> tuple[list[str], Any, list[np.ndarray], list[np.ndarray]]:
    """Return names and descriptions of the kernel's parameters, its outputs, and what has to live as long as they are
    used.
    """
    names: list[str] = []
    described: list[CBuffer] = []
    alive: list[np.ndarray] = []

    def add(
        name: str, size: int, content: np.ndarray | None, result: np.ndarray | None, full: bool, over: int = -1
    ) -> None:
        names.append(name)
        address = content.ctypes.data if content is not None and content.size else None
        target = result.ctypes.data if result is not None and result.size else None
        described.append(CBuffer(address, target, size, result is not None or not full, full, over))
        alive.extend(a for a in (content, result) if a is not None)

    contents = [None if array is None else np.ascontiguousarray(array) for array in arrays]
    first, over = len(names) + len(contents), dict(source.aliases)
    for k, (content, tensor) in enumerate(zip(contents, source.inputs, strict=True)):
        add(f"in{k}", byte_size(tensor), content, None, True, first + over[k] if k in over else -1)
    outputs = [np.zeros(t.dims, numpy_dtype(t)) for t in source.outputs]
    under = {o: contents[k] for k, o in source.aliases}
    for k, (output, tensor) in enumerate(zip(outputs, source.outputs, strict=True)):
        add(f"out{k}", byte_size(tensor), under.get(k), output, k in under)
    for k, tensor in enumerate(source.scratch):
        add(f"scratch{k}", byte_size(tensor), None, None, False)
    return names, (CBuffer * len(described))(*described), outputs, alive


def _element_sizes(source: KernelSource) -> list[int]:
    tensors = (*source.inputs, *source.outputs, *source.scratch)
    return [numpy_dtype(t).itemsize for t in tensors]


def _traffic(name: str, counted: Any) -> BufferTraffic:
    plain = {field: int(getattr(counted, field)) for field, *_ in counted._fields_ if field != "again"}
    return BufferTraffic(name=name, again=tuple(counted.again), **plain)


def _finding(
    kernel: str, raw: CFinding, line: int | None, text: Sequence[str], names: Sequence[str], sizes: Sequence[int]
) -> Finding:
    kind = Kind(raw.kind)
    if raw.buffer >= 0:
        buffer: str | None = names[raw.buffer]
        index: int | None = raw.offset // sizes[raw.buffer]
    else:
        buffer = "shared memory" if raw.buffer == _SHARED else None
        index = raw.offset if raw.buffer == _SHARED else None
    shown = text[line - 1].strip() if line is not None and line <= len(text) else ""
    message = _message(kind, raw, buffer, index)
    return Finding(kind, kernel, message, raw.block, raw.thread, buffer, index, line, shown, raw.count)


def _message(kind: Kind, raw: CFinding, buffer: str | None, index: int | None) -> str:
    does = "writes" if raw.writes & 1 else "reads"
    place = f"{buffer}[{index}]" if raw.buffer >= 0 else f"byte {index} of shared memory"
    match kind:
        case Kind.OUT_OF_BOUNDS if buffer is None:
            return f"{does} {raw.bytes} bytes at an address that is in no buffer"
        case Kind.OUT_OF_BOUNDS:
            return f"{does} {raw.bytes} bytes at {place}, out of bounds"
        case Kind.MISALIGNED:
            return f"{does} {raw.bytes} bytes at {place}, byte {raw.offset}, which is no multiple of {raw.bytes}"
        case Kind.UNWRITTEN:
            return f"reads {place}, which nothing has written"
        case Kind.WRITTEN_INPUT:
            return f"writes {place}, an input"
        case Kind.RACE:
            one = f"thread {raw.other_thread} of block {raw.other_block}"
            other = one if raw.other_thread >= 0 else "other threads"
            return f"{does} {place}, which {other} {'wrote' if raw.writes & 2 else 'read'} with no barrier between"
        case Kind.DIVERGENT_BARRIER if raw.other_block >= 0:
            return f"a barrier that not all threads of the cluster reach: {raw.offset} have ended"
        case Kind.DIVERGENT_BARRIER:
            rest = f", and {raw.offset} have ended" if raw.offset else ""
            return f"a barrier that not all threads of the block reach together: {raw.other_thread} wait at one{rest}"
        case Kind.DIVERGENT_SHUFFLE:
            return "a shuffle that not all lanes it names reach together"
        case Kind.BANK_CONFLICT:
            return (
                f"{does} {place}: {raw.count:,} wavefronts more than needed for the warps' accesses, by bank conflicts"
            )
        case Kind.NO_END:
            return f"waits for other blocks for ever, as {raw.offset} blocks do"
        case Kind.ABSENT_BLOCK:
            there = "may not have begun, or have ended: a barrier of the cluster is missing before or after"
            return f"{does} {place} in block {raw.other_block}, which {there}"
        case Kind.MISSING_OUTPUT:
            return f"no thread writes {place}"
