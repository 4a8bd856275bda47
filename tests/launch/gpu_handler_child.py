"""The GPU handler under a made-up driver, in a process of its own: prints one JSON object. See test_gpu_handler.py."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_stitch.backend.compile import PtxKernel
from jax_stitch.backend.compile.host import load_library
from jax_stitch.backend.launch import call, gpu
from jax_stitch.emit.source import KernelSource
from jax_stitch.graph.model import TensorType

HERE = Path(__file__).parent


class Value(ctypes.Union):
    """``CUlaunchAttributeValue``."""

    _fields_ = (("bytes", ctypes.c_char * 64), ("number", ctypes.c_int), ("dims", ctypes.c_uint * 3))


class Attribute(ctypes.Structure):
    """``CUlaunchAttribute``."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", Value))


class Config(ctypes.Structure):
    """``CUlaunchConfig``, as ``cuda.h`` has it."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


def kernel(name: str, id: str, text: str = "PTX", cubin: bytes = b"CUBIN\0\xff\xfe\x01") -> PtxKernel:
    return PtxKernel(name, id, "sm_90", f"{text} {id}", cubin + id.encode() + b"\0" if cubin else b"", 8, 0, 0, 0)


def source(inputs: int, outputs: int, size: int, **more: Any) -> KernelSource:
    tensor = TensorType("f32", (size,))
    known: dict[str, Any] = {"name": "k", "text": "", "grid": 5, "block": 96, "shared_bytes": 0} | more
    return KernelSource(inputs=(tensor,) * inputs, outputs=(tensor,) * outputs, **known)


class Driver:
    """The driver and the handler, with what was launched."""

    def __init__(self) -> None:
        self.fake = ctypes.CDLL(sys.argv[1])
        handler = gpu.library()
        self.shim = load_library("shim", (HERE / "stream_shim.cc").read_text(), [Path(jax.ffi.include_dir())], "")
        own = [ctypes.cast(getattr(handler, name), ctypes.c_void_p) for name in gpu.STAGES.values()]
        self.shim.shim_set(*own)
        self.traits = [self.shim.shim_traits(function) for function in own]
        self.stream(0x5E01)
        for name in ("jax_stitch_gpu_call_id", "jax_stitch_gpu_call_info"):
            setattr(self.shim, name, getattr(handler, name))
        gpu.register_from(self.shim, "cpu", gpu.TARGET)
        self.launched: list[dict[str, Any]] = []
        self.action: Callable[[Sequence[int]], None] = lambda pointers: None
        self.pointers = 0
        self._run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(self._launch)
        self.be()

    def be(self, refuse_cubins: bool = False, broken: bool = False) -> None:
        self.fake.fake_set(self._run, refuse_cubins, broken)

    def stream(self, value: int) -> None:
        self.shim.shim_stream(ctypes.c_void_p(value))

    def said(self) -> list[str]:
        self.fake.fake_said.restype = ctypes.c_char_p
        told = self.fake.fake_said().decode().splitlines()
        self.fake.fake_forget()
        return [line.strip() for line in told]

    def _launch(self, config: int, function: bytes, parameters: int) -> int:
        of = Config.from_address(config)
        attributes = [of.attributes[k] for k in range(of.count)]
        self.launched.append(
            {
                "grid": list(of.grid),
                "block": list(of.block),
                "shared": of.shared,
                "stream": of.stream,
                "cooperative": [a.value.number for a in attributes if a.id == 2],
                "cluster": [list(a.value.dims) for a in attributes if a.id == 4],
                "count": of.count,
                "image": function.decode(errors="replace"),
            }
        )
        places = (ctypes.c_void_p * self.pointers).from_address(parameters)
        self.action([ctypes.c_void_p.from_address(place).value or 0 for place in places])
        return 0

    def over_pointers(self, inputs: int, outputs: int, size: int) -> None:
        """From now on a kernel writes k + the sum of its inputs, each times its number from 1, to its output k."""

        def view(pointer: int) -> np.ndarray:
            return np.ctypeslib.as_array((ctypes.c_float * size).from_address(pointer))

        def action(pointers: Sequence[int]) -> None:
            total = sum((k + 1) * view(p) for k, p in enumerate(pointers[:inputs]))
            for k, p in enumerate(pointers[inputs:]):
                view(p)[:] = total + k

        self.pointers, self.action = inputs + outputs, action


def message(run: Callable[[], Any]) -> str:
    try:
        jax.block_until_ready(run())
    except Exception as error:
        return str(error)
    return ""


Told = dict[str, Any]
X = np.arange(480, dtype=np.float32)


def main() -> None:
    os.environ["JAX_STITCH_LAUNCHER"] = "ffi"
    driver = Driver()
    found: Told = {"traits": driver.traits}
    x = jnp.asarray(X)
    for part in (parameters, launches, loads, at_once, failures):
        part(driver, found, x)
    print(json.dumps(found))


def parameters(driver: Driver, found: Told, x: jax.Array) -> None:
    driver.over_pointers(2, 3, 480)
    of = source(2, 3, 480, shared_bytes=100_000)
    results = jax.jit(lambda x: call(kernel("k", "three"), of, x, x * 2))(x)
    found["right"] = all((np.asarray(r) == X * 5 + k).all() for k, r in enumerate(results))
    found["one"] = driver.launched.pop()
    found["one said"] = driver.said()

    many = 150
    driver.over_pointers(many, 1, 480)
    wide = jax.jit(lambda x: call(kernel("k", "wide"), source(many, 1, 480), *[x + k for k in range(many)])[0])(x)
    wanted = sum((k + 1) * (X + k) for k in range(many))
    found["many"] = bool((np.asarray(wide) == wanted.astype(np.float32)).all())


def launches(driver: Driver, found: Told, x: jax.Array) -> None:
    driver.over_pointers(1, 1, 480)
    driver.said()
    waiting = source(1, 1, 480, text="ST_GRID_BARRIER", phases=(5, 1))
    jax.block_until_ready(jax.jit(lambda x: call(kernel("k", "waiting"), waiting, x))(x))
    found["waiting"] = driver.launched[-1]
    last = source(1, 1, 480, text="ST_LAST_BLOCK_ALONE", phases=(5, 1))
    jax.block_until_ready(jax.jit(lambda x: call(kernel("k", "last"), last, x))(x))
    found["last"] = driver.launched[-1]
    for name in ("clusters", "clustered"):  # The second says itself, in its code, how many blocks make a cluster.
        cluster = source(1, 1, 480, cluster=16)
        made = kernel("k", name, cubin=b"CUBIN clustered" if name == "clustered" else b"CUBIN")
        driver.said()
        jax.block_until_ready(jax.jit(lambda x, m=made, c=cluster: call(m, c, x))(x))
        found[name], found[f"{name} said"] = driver.launched[-1], driver.said()


def loads(driver: Driver, found: Told, x: jax.Array) -> None:
    shared = jax.jit(lambda x: call(kernel("k", "shared"), source(1, 1, 480), *call(kernel("k", "shared"), of1(), x)))
    found["same kernel twice"] = float(jax.block_until_ready(shared(x))[0][3])
    found["same said"] = driver.said()
    driver.stream(0x5E02)
    jax.block_until_ready(shared(x))
    found["another device said"] = driver.said()
    driver.stream(0x5E01)
    del shared
    jax.clear_caches()
    found["gone said"] = driver.said()


def at_once(driver: Driver, found: Told, x: jax.Array) -> None:
    """Threads that call one executable, and several of the same kernel."""
    programs = [jax.jit(lambda x, k=k: call(kernel("k", "threads"), of1(), x + k)[0] - k) for k in range(4)]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda k: np.asarray(programs[k % 4](x)), range(200)))
    found["threads"] = all((result == X).all() for result in results)
    found["threads loads"] = sum(line.startswith("load") for line in driver.said())


def failures(driver: Driver, found: Told, x: jax.Array) -> None:
    driver.be(refuse_cubins=True)
    jax.block_until_ready(jax.jit(lambda x: call(kernel("k", "old driver"), of1(), x))(x))
    found["refused cubin said"] = driver.said()
    found["wrong ptx"] = message(lambda: jax.jit(lambda x: call(kernel("k", "bad", "wrong"), of1(), x))(x))
    driver.be(broken=True)
    found["too large"] = message(lambda: jax.jit(lambda x: call(kernel("k", "large"), of1(), x))(x))
    lacking = jax.ffi.ffi_call(gpu.TARGET, jax.ShapeDtypeStruct((480,), jnp.float32))
    found["lacking"] = message(lambda: jax.jit(lambda x: lacking(x, id="a", name="k"))(x))


def of1() -> KernelSource:
    return source(1, 1, 480)


if __name__ == "__main__":
    main()
