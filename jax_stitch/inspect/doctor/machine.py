"""Examine this machine: devices, compilers, the cache, and the launcher of kernels."""

from __future__ import annotations

import ctypes
import secrets
import shlex
import time
import warnings

import jax

from jax_stitch import devices
from jax_stitch.backend.compile import (
    CompilerMissing,
    CompilerTrouble,
    KernelCompileError,
    NvrtcMissing,
    host,
    toolchain,
)
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.load import load
from jax_stitch.backend.compile.nvrtc import nvrtc
from jax_stitch.backend.launch import choice, native
from jax_stitch.devices import Device
from jax_stitch.frontend.capture.client import cuda_plugin_installed
from jax_stitch.inspect.doctor.model import Finding
from jax_stitch.util import store
from jax_stitch.util.formatting import format_bytes, format_seconds, one_line, shorten
from jax_stitch.util.options.launchers import LAUNCHER_VARIABLE

NO_DEVICE = Finding("not known", "JAX has no device")
_INSTALL_PLAN = "pip install 'jax-stitch[plan]'"
_LONGEST = 300
_TEXT = '#include "stitch.h"\nextern "C" int32_t answer(int32_t x) {{ return x + 1; }}  // {nonce}\n'


def devices_found() -> tuple[Finding, ...]:
    """Return what JAX runs on, and how it is seen here."""
    try:
        found = jax.devices()
    except RuntimeError as error:
        advice = "correct or unset $JAX_PLATFORMS, or mend the driver that it names"
        return (Finding("JAX", _short(error), advice, stops_kernels=True),)
    in_use = devices.in_use_unmeasured()
    return (
        Finding("platform", f"{found[0].platform}, {len(found)} of {found[0].device_kind}"),
        Finding(in_use.name, _described(in_use)),
    )


def platform_in_use() -> str | None:
    """Return JAX's name of the platform in use; None where JAX cannot start, which ``devices_found`` tells."""
    try:
        return str(jax.default_backend())
    except RuntimeError:
        return None


def _described(device: Device) -> str:
    if not device.target.is_host:
        kind = f"{device.description}, {device.sm}, {device.multiprocessors} multiprocessors"
        return f"{kind}, {format_bytes(device.memory_bytes)} of memory"
    caches = (device.shared_per_block, device.shared_per_block_optin, device.l2_bytes)
    sizes = ", ".join(map(format_bytes, caches))
    return f"{device.description}, {device.multiprocessors} cores, vectors of {device.warp_size} f32, caches {sizes}"


def compiler() -> tuple[Finding, ...]:
    """Return whether the C++ compiler makes code that runs. Nothing of it comes from the cache."""
    stops = platform_in_use() in (None, "cpu")
    try:
        command = toolchain.compiler()
        version = toolchain.identity(command).removeprefix(shlex.join(command)).strip().splitlines()
        told = [Finding("command", shlex.join(command)), Finding("version", version[0] if version else "none told")]
    except CompilerMissing as missing:
        return (Finding("command", "none", str(missing), stops),)
    except (CompilerTrouble, OSError) as trouble:
        return (Finding("command", "fails", _short(trouble), stops),)
    start = time.perf_counter()
    try:
        options = (*host.FLAGS, f"-I{RUNTIME}")
        made = toolchain.shared_object("answer", _TEXT.format(nonce=secrets.token_hex(8)), options)
        answer = load(made).answer
        answer.argtypes, answer.restype = (ctypes.c_int32,), ctypes.c_int32
        if answer(41) != 42:
            raise CompilerTrouble("what it compiles computes something else")
    except (KernelCompileError, CompilerTrouble, OSError) as trouble:
        advice = "name a compiler that works in $CXX, and a folder with room that programs may run from in $TMPDIR"
        return (*told, Finding("small kernel", _short(trouble), advice, stops))
    took = format_seconds(time.perf_counter() - start)
    return (*told, Finding("small kernel", f"compiled and run in {took}"))


def plans() -> tuple[Finding, ...]:
    """Return whether plans for described GPUs can be made. Nothing else needs that."""
    has_plugin = cuda_plugin_installed()
    plugin = Finding("XLA's GPU compiler", "installed") if has_plugin else _missing("XLA's GPU compiler")
    try:
        return plugin, Finding("NVRTC", str(nvrtc()).removeprefix("NVRTC "))
    except NvrtcMissing:
        return plugin, _missing("NVRTC")


def _missing(name: str) -> Finding:
    return Finding(name, "not installed", f"for plans: {_INSTALL_PLAN}")


def cache() -> tuple[Finding, ...]:
    """Return whether what is made is kept for later processes. Without that, each makes its own."""
    content = store.contents()
    written, name = secrets.token_bytes(16), "doctor"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.write("devices", name, written)
        is_kept = store.read("devices", name) == written
    advice = f"point ${store.FOLDER_VARIABLE} to a folder with room that nobody else can write to"
    if caught:
        advice = one_line(str(caught[0].message))
    size = (
        f"{format_bytes(content.bytes)} of {format_bytes(content.limit)} ({sum(k.files for k in content.kinds)} files)"
    )
    return (
        Finding("folder", str(content.folder)),
        Finding("size", size),
        Finding("writable", "yes" if is_kept else "no", "" if is_kept else advice),
    )


def launcher() -> tuple[Finding, ...]:
    """Return what launches kernels on the device in use."""
    platform = platform_in_use()
    if platform is None:
        return (NO_DEVICE,)
    if platform == "cpu":
        return (_host_launcher(),)
    from jax_stitch.jit.tune.canary import known_launcher

    known = known_launcher(devices.get())
    verdict = f"{known.value} works" if known is not None else "not tried yet: the first stitched call does"
    asked = f", asked for by ${LAUNCHER_VARIABLE}" if choice.is_settled() and known is None else ""
    return Finding("in use", f"{choice.in_use().value}{asked}"), Finding("canary", verdict)


def _host_launcher() -> Finding:
    try:
        is_shipped = native.at_hand() is not None
        native.library()
    except CompilerMissing as missing:
        return Finding("handler", "not there", str(missing), stops_kernels=True)
    except (KernelCompileError, CompilerTrouble, OSError) as trouble:
        advice = "name a compiler that works in $CXX"
        return Finding("handler", _short(trouble), advice, stops_kernels=True)
    return Finding("handler", "loaded" if is_shipped else "compiled now, and loaded")


def _short(error: Exception) -> str:
    return shorten(one_line(str(error).strip() or repr(error)), _LONGEST)
