"""What makes most programs cheap: XLA compiles a text once, and without optimising; kernels are compiled together.

None of it decides what is wrong. Where a program's results are not as good as equal under it, the program is run again
without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from jax._src import compiler

from jax_stitch.backend.compile import parallel

LEVEL = ("xla_backend_optimization_level", 0)


@contextmanager
def cheap() -> Iterator[None]:
    """XLA's executables are kept by the text that they are made of, and not optimised."""
    with ExitStack() as stack:
        kept: dict[tuple[str, str], Any] = {}
        usual = compiler.backend_compile_and_load

        def compiled(backend: Any, module: Any, devices: Any, options: Any, callbacks: Sequence[Any]) -> Any:
            others = [o for o in options.env_option_overrides if o[0] != LEVEL[0]]
            options.env_option_overrides = [*others, LEVEL]
            if callbacks:
                return usual(backend, module, devices, options, callbacks)
            key = (str(module), str(others))
            if key not in kept:
                kept[key] = usual(backend, module, devices, options, callbacks)
            return kept[key]

        stack.enter_context(mock.patch.object(compiler, "backend_compile_and_load", compiled))
        yield


@contextmanager
def kernels_together() -> Iterator[None]:
    """A program's kernels are one text for the C++ compiler, however long they are and however many cores there are."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(parallel, "usable_cores", lambda: 1))
        stack.enter_context(mock.patch.object(parallel, "_SMALL", 1 << 20))
        stack.enter_context(mock.patch.object(parallel, "_TOGETHER", 1 << 20))
        yield
