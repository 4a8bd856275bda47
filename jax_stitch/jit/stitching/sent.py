"""A program with kernels as bytes, for a parent from its own child.

As ``pickle`` has it, less what makes that unsafe: only classes of ours and plain values are made of what comes in.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from jax_stitch.backend.compile import HostKernel, load_host
from jax_stitch.jit.stitching.model import KernelProgram


class KernelGone(LookupError):
    """A kernel that was compiled is not kept where this process finds it."""


def to_bytes(program: KernelProgram) -> bytes:
    """Return all of it; of a kernel for the CPU, its name and id, by which it is kept on disk."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**copyreg.dispatch_table, MappingProxyType: _mapping, HostKernel: _kernel}
    pickler.dump(program)
    return buffer.getvalue()


def from_bytes(data: bytes) -> KernelProgram:
    """Return the reverse of ``to_bytes``, with the kernels loaded. Raises ``KernelGone``."""
    program = _Unpickler(io.BytesIO(data)).load()
    assert isinstance(program, KernelProgram)
    return program


_PACKAGES = ("jax_stitch", "hlo_parser")
_OTHERS = frozenset(
    (
        *(("builtins", name) for name in ("complex", "frozenset", "set", "slice", "range", "bytearray")),
        *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
        *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
        *(("numpy", name) for name in ("ndarray", "dtype")),
    )
)
"""What NumPy's arrays and our values are made of."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name in ("_proxy", "_loaded"):
            return globals()[name]
        found = super().find_class(module, name) if self._is_known(module, name) else None
        if (module, name) not in _OTHERS and not _is_value(found):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a program")
        return found

    @staticmethod
    def _is_known(module: str, name: str) -> bool:
        return (module, name) in _OTHERS or module.partition(".")[0] in _PACKAGES or module == "ml_dtypes"


def _is_value(found: Any) -> bool:
    """Return whether that is a class of values, which do nothing when they are made."""
    kinds = (Struct, Enum, tuple, Mapping, np.generic)
    return isinstance(found, type) and (is_dataclass(found) or issubclass(found, kinds))


def _mapping(mapping: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return _proxy, (dict(mapping),)


def _proxy(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


def _kernel(kernel: HostKernel) -> tuple[Any, ...]:
    return _loaded, (kernel.name, kernel.id)


def _loaded(name: str, id: str) -> HostKernel:
    kernel = load_host(name, id)
    if kernel is None:
        raise KernelGone(name)
    return kernel
