"""CuPy's interface, as far as the package uses it, on this machine's memory: it writes down what it is asked for.

A kernel is what a test gives for its name: a function of the pointers that it is launched on.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

GARBAGE = 0x5A
"""What new memory is full of: a kernel that counts on zeros goes wrong."""


class Data:
    """CuPy's ``MemoryPointer``."""

    def __init__(self, told: list[Any], array: np.ndarray) -> None:
        self.told, self.array, self.ptr = told, array, array.ctypes.data

    def memset_async(self, value: int, size: int) -> None:
        assert size <= self.array.nbytes
        self.told.append(("memset", value, size))

    def copy_from_device_async(self, source: Data, size: int) -> None:
        self.told.append(("copy", size))


class Array:
    """CuPy's ``ndarray``."""

    def __init__(self, told: list[Any], array: np.ndarray) -> None:
        self._array, self.data, self.nbytes, self.dtype = array, Data(told, array), array.nbytes, array.dtype

    def __dlpack__(self, **_: Any) -> Any:
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class Function:
    """CuPy's ``Function``."""

    def __init__(self, fake: Fake, module: Module, name: str) -> None:
        self._fake, self._name, self.module, self.ptr = fake, name, module, 0xF00D

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        shared_mem: int = 0,
        stream: Any = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        assert all(type(a) is np.uint64 for a in args), "8 bytes each, by value"
        self._fake.told.append(("launch", self._name, grid, block, len(args), shared_mem, enable_cooperative_groups))
        self._fake.kernels[self._name]([int(a) for a in args])


class Module:
    """CuPy's ``Module``."""

    def __init__(self, fake: Fake) -> None:
        self._fake = fake

    def load(self, code: bytes) -> None:
        assert isinstance(code, bytes)
        self._fake.told.append(("load", code))

    def get_function(self, name: str) -> Function:
        return Function(self._fake, self, name)


class Event:
    """CuPy's ``Event``; the clock goes on by a microsecond with each."""

    def __init__(self, fake: Fake) -> None:
        self._fake, self.at = fake, 0

    def record(self) -> None:
        self._fake.clock += 1
        self.at = self._fake.clock
        self._fake.told.append("record")

    def synchronize(self) -> None:
        self._fake.told.append("wait")


class Fake(types.ModuleType):
    """CuPy."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.told: list[Any] = []
        self.kernels: dict[str, Callable[[list[int]], None]] = {}
        self.clock = 0
        self.attributes = {38: 1 << 20}
        self.occupancy = 2
        cuda = types.SimpleNamespace(
            Module=lambda: Module(self),
            Event=lambda: Event(self),
            Device=lambda: types.SimpleNamespace(id=0),
            is_available=lambda: True,
            get_elapsed_time=lambda start, stop: (stop.at - start.at) * 1e-3,
            get_current_stream=lambda: types.SimpleNamespace(synchronize=lambda: self.told.append("wait")),
        )
        cuda.driver = types.SimpleNamespace(
            funcSetAttribute=lambda f, attribute, value: self.told.append(("attribute", attribute, value)),
            occupancyMaxActiveBlocksPerMultiprocessor=self._occupancy,
        )
        cuda.runtime = types.SimpleNamespace(
            deviceGetAttribute=lambda number, ordinal: self.attributes[number],
            getDeviceProperties=lambda ordinal: {"totalGlobalMem": 80 << 30},
            driverGetVersion=lambda: 13010,
        )
        self.cuda = cuda
        self.get_default_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=lambda: self.told.append("freed"))

    def _occupancy(self, function: int, block: int, shared: int) -> int:
        self.told.append(("occupancy", block, shared))
        return self.occupancy

    def empty(self, shape: Any, dtype: Any) -> Array:
        made = np.empty(shape, dtype)
        made.view(np.uint8).fill(GARBAGE) if made.ndim and made.size else None
        return Array(self.told, made)

    def from_dlpack(self, array: Any) -> Array:
        return Array(self.told, np.from_dlpack(array))
