"""A program of optimized HLO under XLA alone, which takes back neither fusions nor bitcasts that it has made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jaxlib.xla_client
import numpy as np
from jaxlib import _hlo, _jax

import hlo_parser
from hlo_parser import ArrayShape, Computation, FrozenDict, Instruction, Module
from hlo_parser.rewrite import fresh_name, map_instructions, remove_unused_computations
from jax_stitch.graph.layouts import bitcast_steps


def run_plain(module: Module, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a program on the default device."""
    proto = _hlo.hlo_module_from_text(str(opened(module))).as_serialized_hlo_module_proto()
    device: Any = jax.devices()[0]
    options = jaxlib.xla_client.CompileOptions()
    executable = device.client.compile_and_load(_jax.mlir.hlo_to_stablehlo(proto), _jax.DeviceList((device,)), options)
    with jax.enable_x64(True):
        buffers = [jax.device_put(a, device) for a in arguments]
    results = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
    return [np.asarray(parts[0]) for parts in results]


def opened(module: Module) -> Module:
    """The same program without fusions, calls and bitcasts, and without layouts."""
    module = replace(module, attributes=FrozenDict())
    for c in module.computations:
        module = hlo_parser.replace_computation(module, _without_bitcasts(c))
    found = True
    while found:
        found = False
        for c in module.computations:
            for i in c:
                if i.opcode in ("fusion", "call"):
                    module, found = hlo_parser.inline(module, c.name, i.name), True
    module = map_instructions(module, lambda _, i: replace(i, shape=hlo_parser.without_layout(i.shape)))
    return remove_unused_computations(module)


def _without_bitcasts(c: Computation) -> Computation:
    for i in c:
        if i.opcode == "bitcast":
            c = hlo_parser.rewrite.replace_instruction(c, i.name, _moves(c, i))
    return c


def _moves(c: Computation, bitcast: Instruction) -> list[Instruction]:
    source, target = c[bitcast.operands[0]].shape, bitcast.shape
    assert isinstance(source, ArrayShape) and isinstance(target, ArrayShape)
    operand, taken = bitcast.operands[0], {i.name for i in c}
    found: list[Instruction] = []
    for step in bitcast_steps(source, target, bitcast.name):
        name = fresh_name(f"{bitcast.name}.{step.op}", taken)
        taken.add(name)
        attributes = FrozenDict({"dimensions": step.permutation} if step.op == "transpose" else {})
        found.append(Instruction(name, step.op, ArrayShape(step.dtype, step.dims), (operand,), attributes))
        operand = name
    return found or [Instruction(bitcast.name, "reshape", target, bitcast.operands)]
