"""One HLO instruction each, over small arrays, of every kind that moves or maps elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np

import hlo_parser
from jax_stitch import graph
from jax_stitch.analysis import Read
from jax_stitch.analysis.maps import reads
from jax_stitch.graph import Graph, Node
from jax_stitch.ir.indices import const

INSTRUCTIONS: Mapping[str, str] = {
    "add": "s32[3,4] add(s32[3,4] %a, s32[3,4] %b)",
    "broadcast_scalar": "s32[3,4] broadcast(s32[] %a), dimensions={}",
    "broadcast_inner": "s32[3,4,2] broadcast(s32[3,2] %a), dimensions={0,2}",
    "broadcast_outer": "s32[5,3,2] broadcast(s32[3,2] %a), dimensions={1,2}",
    "reshape_merge": "s32[6,4] reshape(s32[2,3,4] %a)",
    "reshape_split": "s32[2,3,2,2] reshape(s32[6,4] %a)",
    "reshape_across": "s32[4,6] reshape(s32[6,4] %a)",
    "reshape_ones": "s32[1,6,1,4] reshape(s32[6,4] %a)",
    "transpose": "s32[4,2,3] transpose(s32[2,3,4] %a), dimensions={2,0,1}",
    "slice": "s32[2,3] slice(s32[5,6] %a), slice={[1:5:2], [0:6:2]}",
    "slice_one_dim": "s32[4,2] slice(s32[4,6] %a), slice={[0:4], [3:5]}",
    "reverse": "s32[3,4] reverse(s32[3,4] %a), dimensions={1}",
    "reverse_all": "s32[3,4,2] reverse(s32[3,4,2] %a), dimensions={0,1,2}",
    "concatenate": "s32[3,7] concatenate(s32[3,2] %a, s32[3,4] %b, s32[3,1] %c), dimensions={1}",
    "concatenate_itself": "s32[4,2] concatenate(s32[2,2] %a, s32[2,2] %a), dimensions={0}",
    "pad": "s32[6,7] pad(s32[3,4] %a, s32[] %b), padding=1_2x0_3",
    "pad_negative": "s32[2,3] pad(s32[3,4] %a, s32[] %b), padding=-1_0x1_-2",
    "pad_interior": "s32[8,10] pad(s32[3,4] %a, s32[] %b), padding=1_0_2x-1_1_2",
    "pad_none": "s32[3,6] pad(s32[3,4] %a, s32[] %b), padding=0_0x1_1",
    "dynamic_slice": "s32[2,4] dynamic-slice(s32[5,4] %a, s32[] %i, s32[] %j), dynamic_slice_sizes={2,4}",
    "dynamic_slice_row": "s32[1,4] dynamic-slice(s32[5,4] %a, u8[] %i, u8[] %j), dynamic_slice_sizes={1,4}",
    "gather_rows": "s32[6,4] gather(s32[5,4] %a, s32[6] %i), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}",
    "gather_columns": "s32[5,6] gather(s32[5,4] %a, s32[6,1] %i), offset_dims={0}, collapsed_slice_dims={1}, "
    "start_index_map={1}, index_vector_dim=1, slice_sizes={5,1}",
    "gather_elements": "s32[6] gather(s32[5,4] %a, s64[6,2] %i), offset_dims={}, collapsed_slice_dims={0,1}, "
    "start_index_map={1,0}, index_vector_dim=1, slice_sizes={1,1}",
    "gather_windows": "s32[3,2,3] gather(s32[5,4] %a, s32[3,2] %i), offset_dims={1,2}, collapsed_slice_dims={}, "
    "start_index_map={0,1}, index_vector_dim=1, slice_sizes={2,3}",
    "gather_part": "s32[3,2] gather(s32[5,4] %a, s32[3] %i), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,2}",
    "gather_batched": "s32[5,3] gather(s32[5,4] %a, s32[5,3,1] %i), offset_dims={}, collapsed_slice_dims={1}, "
    "start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, "
    "slice_sizes={1,1}",
    "gather_vector_first": "s32[3,4] gather(s32[5,4] %a, u32[1,3] %i), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=0, slice_sizes={1,4}",
}


def graph_of(instruction: str) -> tuple[Graph, Node]:
    """The graph of one instruction whose operands are parameters, as the text has it."""
    result, rest = instruction.split(" ", 1)
    operands = rest[rest.index("(") + 1 : rest.index(")")]
    declared = dict.fromkeys(piece.strip() for piece in operands.replace(", ", ";").split(";"))
    lines = []
    for number, piece in enumerate(declared):
        shape, name = piece.split(" ")
        lines.append(f"  {name} = {shape} parameter({number})")
    names = ", ".join(piece.strip().split(" ")[1] for piece in operands.replace(", ", ";").split(";"))
    body = rest.replace(operands, names)
    lines.append(f"  ROOT %r = {result} {body}")
    built = graph.flatten(hlo_parser.parse("HloModule test\n\nENTRY %main {\n" + "\n".join(lines) + "\n}\n"))
    graph.verify(built)
    return built, built[built.results[0]]


def indices_of(dims: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return product(*map(range, dims))


def chosen(built: Graph, node: Node, index: tuple[int, ...], operands: list[np.ndarray]) -> list[tuple[int, tuple]]:
    """The operand number and index of each element that a result element reads, for given operand values.

    Of a concatenate or pad it is the one whose guards hold; of other operations one for each operand.
    """
    found = []
    every = reads(built, node, tuple(map(const, index)))
    guarded = any(r.guards for r in every)
    for read in every:
        values = start_values(read, operands)
        if all(_holds(g, values) for g in read.guards):
            found.append((read.operand, tuple(e.evaluate(values) for e in read.index)))
            if guarded:
                break
    return found


def start_values(read: Read, operands: list[np.ndarray]) -> dict[str, int]:
    values: dict[str, int] = {}
    for symbol, operand, at in read.starts:
        (variable,) = {v for e in read.index for v in e.variables() if v.name == symbol}
        value = int(operands[operand][tuple(e.evaluate({}) for e in at)])
        values[symbol] = min(max(value, 0), variable.high)
    return values


def _holds(guard, values: dict[str, int]) -> bool:
    value = guard.value.evaluate(values)
    return guard.low <= value <= guard.high and value % guard.step == 0
