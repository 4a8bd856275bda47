"""Programs for the tests of files: HLO of our own writing, and dumps of small JAX functions in every form."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxlib import _hlo

SUM = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""

ROWS = f"""HloModule rows
{SUM}
ENTRY e {{
  x = f32[64,32] parameter(0)
  zero = f32[] constant(0)
  sums = f32[64] reduce(x, zero), dimensions={{1}}, to_apply=add
  wide = f32[64,32] broadcast(sums), dimensions={{0}}
  ROOT y = f32[64,32] divide(x, wide)
}}
"""
"""Rows divided by their sums: two kernels of XLA's, one of ours."""

COLUMNS = f"""HloModule columns
{SUM}
ENTRY e {{
  x = f32[64,32] parameter(0)
  zero = f32[] constant(0)
  ROOT sums = f32[32] reduce(x, zero), dimensions={{0}}, to_apply=add
}}
"""

TUPLES = """HloModule tuples
ENTRY e {
  p = (f32[4], (s32[2], pred[])) parameter(0)
  q = f32[4] parameter(1)
  a = f32[4] get-tuple-element(p), index=0
  inner = (s32[2], pred[]) get-tuple-element(p), index=1
  n = s32[2] get-tuple-element(inner), index=0
  flag = pred[] get-tuple-element(inner), index=1
  on = pred[4] broadcast(flag), dimensions={}
  sum = f32[4] add(a, q)
  chosen = f32[4] select(on, sum, q)
  twice = s32[2] add(n, n)
  pair = (s32[2], f32[4]) tuple(twice, chosen)
  ROOT r = ((s32[2], f32[4]), pred[]) tuple(pair, flag)
}
"""
"""Tuples among the parameters and in the root."""

OPENABLE = """HloModule openable, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }

fused {
  a = f32[4,8]{1,0} parameter(0)
  e = f32[4,8]{1,0} exponential(a)
  n = f32[4,8]{1,0} negate(a)
  ROOT both = (f32[4,8]{1,0}, f32[4,8]{1,0}) tuple(e, n)
}

later {
  b = f32[8,4]{1,0} parameter(0)
  ROOT m = f32[8,4]{1,0} multiply(b, b)
}

ENTRY e {
  x = f32[4,8]{1,0} parameter(0)
  two = (f32[4,8]{1,0}, f32[4,8]{1,0}) fusion(x), kind=kLoop, calls=fused
  first = f32[4,8]{1,0} get-tuple-element(two), index=0
  second = f32[4,8]{1,0} get-tuple-element(two), index=1
  turned = f32[8,4]{0,1} bitcast(first)
  moved = f32[8,4]{1,0} copy(turned)
  begun = ((f32[8,4]{1,0}), f32[8,4]{1,0}, u32[]) async-start(moved), calls=later
  ended = f32[8,4]{1,0} async-done(begun)
  copying = (f32[4,8]{1,0}, f32[4,8]{1,0}, u32[]) copy-start(second)
  copied = f32[4,8]{1,0} copy-done(copying), control-predecessors={ended}
  flat = f32[32]{0} bitcast(copied)
  ROOT r = (f32[8,4]{1,0}, f32[32]{0}) tuple(ended, flat)
}
"""
"""What XLA's passes make: fusions of several results, bitcasts across layouts, copies, asynchronous pairs, an alias."""


def spread(partitions: int) -> str:
    """One device's part of a program for several: a sum over all devices."""
    groups = ",".join(map(str, range(partitions)))
    return f"""HloModule spread, is_scheduled=true, num_partitions={partitions}
{SUM}
ENTRY e {{
  x = f32[64,32]{{1,0}} parameter(0)
  zero = f32[] constant(0)
  sums = f32[64]{{0}} reduce(x, zero), dimensions={{1}}, to_apply=add
  all = f32[64]{{0}} all-reduce(sums), channel_id=1, replica_groups={{{{{groups}}}}},
    use_global_device_ids=true, to_apply=add
  wide = f32[64,32]{{1,0}} broadcast(all), dimensions={{0}}
  ROOT y = f32[64,32]{{1,0}} divide(x, wide)
}}
"""


def lowered(fun: Callable[..., Any], *args: Any) -> Any:
    """A function lowered for the CPU."""
    return jax.jit(fun, keep_unused=True).lower(*args)


def text(module: Any) -> str:
    """HLO text with all constants."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return str(module.to_string(options))


def before(fun: Callable[..., Any], *args: Any) -> str:
    """HLO text from before XLA's passes."""
    return text(lowered(fun, *args).compiler_ir("hlo").as_hlo_module())


def after(fun: Callable[..., Any], *args: Any) -> str:
    """HLO text from after them, on the CPU."""
    (module,) = lowered(fun, *args).compile().runtime_executable().hlo_modules()
    return text(module)


def forms(fun: Callable[..., Any], *args: Any) -> dict[str, str | bytes]:
    """A function in every form that is read, by what it is."""
    made = lowered(fun, *args)
    bytecode = io.BytesIO()
    made.compiler_ir("stablehlo").operation.write_bytecode(bytecode)
    (optimized,) = made.compile().runtime_executable().hlo_modules()
    proto: bytes = made.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return {
        "HLO text": before(fun, *args),
        "optimized HLO text": text(optimized),
        "HLO module proto": proto,
        "optimized HLO module proto": optimized.as_serialized_hlo_module_proto(),
        "HLO proto": wrapped(proto),
        "HLO snapshot": wrapped(wrapped(proto)),
        "StableHLO text": made.as_text(),
        "StableHLO bytecode": bytecode.getvalue(),
        "portable StableHLO": jax.export.export(jax.jit(fun))(*args).mlir_module_serialized,
    }


def wrapped(message: bytes) -> bytes:
    """A proto in the first field of another, as XLA's dumps and snapshots have it, before a field of their own."""
    size, number = b"", len(message)
    while number > 127:
        size += bytes([number & 127 | 128])
        number >>= 7
    return b"\x0a" + size + bytes([number]) + message + b"\x1a\x02\x08\x01"


def normalised(x: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A small function with several kernels."""
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale, mean * jnp.arange(1.0, 65.0)[
        :, None
    ]
