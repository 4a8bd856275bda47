"""Is a kernel right that writes outputs over inputs? Asked of the checking mode, which runs it thread by thread in
shared memory and sees every access: it knows nothing of how that was decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jax_stitch.backend.launch.element_types import numpy_dtype
from jax_stitch.checking import check
from jax_stitch.emit import KernelSource, Reuse, kernel_of
from jax_stitch.emit.cpp.kernel import text
from jax_stitch.kernel.model import Kernel
from jax_stitch.pipeline import StitchedKernel
from jax_stitch.util.values import replace


def pairs(kernel: StitchedKernel) -> Iterator[Reuse]:
    """Every input with every output of its type."""
    source = kernel.source
    for i, tensor in enumerate(source.inputs):
        for o, other in enumerate(source.outputs):
            if tensor == other and tensor.size:
                yield Reuse(i, o)


def arguments(source: KernelSource, seed: int) -> list[np.ndarray]:
    """Values for a kernel's inputs, of which no two elements are equal where the type has so many."""
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    for tensor in source.inputs:
        dtype = numpy_dtype(tensor)
        if dtype.kind in "iub":
            found.append(rng.integers(0, 2 if dtype.kind == "b" else 31, tensor.dims).astype(dtype))
        else:
            found.append((1 + rng.permutation(tensor.size).reshape(tensor.dims) / max(1, tensor.size)).astype(dtype))
    return found


def naive(kernel: StitchedKernel, reuse: Reuse) -> KernelSource:
    """The kernel written over an input whatever it does."""
    made: Kernel = kernel_of(kernel.scheduled)
    given, taken = made.inputs[reuse.input].name, made.outputs[reuse.output].name
    outputs = tuple(replace(b, over=given if b.name == taken else "") for b in made.outputs)
    written = text(replace(made, outputs=outputs))
    return replace(kernel.source, text=written, aliases=((reuse.input, reuse.output),))


def fault(plain: KernelSource, over: KernelSource, arrays: Sequence[Any]) -> str | None:
    """What is wrong with a kernel written over inputs, beside the same that is not."""
    wanted, got = check(plain, arrays), check(over, arrays)
    if got.findings.faults:
        return str(got.findings)
    for k, (a, b) in enumerate(zip(wanted.outputs, got.outputs, strict=True)):
        if a.tobytes() != b.tobytes():
            return f"output {k} differs"
    return None
