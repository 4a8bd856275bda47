"""What a rebuilt program depends on, as the name of its entry on disk."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jaxlib

from jax_stitch import store
from jax_stitch.capture import Capture
from jax_stitch.compile import nvrtc, toolchain
from jax_stitch.devices import Device
from jax_stitch.planner_names import PlannerName

_PACKAGES = ("hlo_parser", "jax_stitch")
_SOURCES = frozenset({".py", ".h", ".cc", ".json", ".toml", ".txtpb"})
_MEASURED = ("clock_ghz", "memory_bandwidth", "memory_bytes")
"""Facts of a CPU that differ a little each time they are asked for. A plan made for the others' sake is no worse."""
_JAX_OPTIONS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_disable_most_optimizations",
    "jax_optimization_level",
    "jax_exec_time_optimization_effort",
    "jax_memory_fitting_effort",
    "jax_memory_fitting_level",
    "jax_cpu_enable_fast_math",
)
"""What of JAX's configuration XLA's optimized HLO depends on, besides the program."""
_ENVIRONMENT = ("XLA_FLAGS", "NVIDIA_TF32_OVERRIDE")


def entry_name(
    captured: Capture, device: Device, scheduled_for: Device, planner: PlannerName, templates: str = ""
) -> str:
    """A hash of the program, what it is planned with, the devices that it runs on and is laid out for, all tools."""
    config: Any = jax.config  # whose typing lacks its flags
    names = config.jax_compilation_cache_include_metadata_in_key  # as in JAX's own cache
    return store.key(
        kind="program",
        program=captured.stablehlo(names),
        device=_facts(device),
        scheduled_for=_facts(scheduled_for),
        planner=planner,
        templates=templates,
        compiler=toolchain.stamp() if device.kind == "cpu" else nvrtc.stamp(),
        processor=toolchain.processor() if device.kind == "cpu" else None,
        versions=[jax.__version__, jaxlib.__version__, *_plugins()],
        source=source(),
        options={name: str(getattr(config, name, None)) for name in _JAX_OPTIONS},
        environment={name: os.environ.get(name) for name in _ENVIRONMENT},
    )


@functools.cache
def source() -> str:
    """A hash of this package's own files: in a checkout they change without a new version."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parents[2]
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in _SOURCES:
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _facts(device: Device) -> dict[str, object]:
    facts = asdict(device)
    if device.kind == "cpu":
        for measured in _MEASURED:
            del facts[measured]
    return facts


@functools.cache
def _plugins() -> tuple[str, ...]:
    """JAX's plugins for CUDA, which hold XLA's GPU compiler."""
    found = []
    for name in ("jax-cuda12-pjrt", "jax-cuda13-pjrt"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)
