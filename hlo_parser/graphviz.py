"""A computation as a graph for Graphviz."""

from __future__ import annotations

import json

from .model import Computation, Instruction

_COLORS = {
    "parameter": "#f2c94c",
    "constant": "#e0e0e0",
    "fusion": "#b3d4ff",
    "dot": "#9be3a4",
    "convolution": "#9be3a4",
    "custom-call": "#d7b8f3",
    "while": "#ffb3b3",
    "conditional": "#ffb3b3",
}


def dot(c: Computation) -> str:
    """Return a digraph: a box for each instruction, an arrow from operand to user, dashed for control dependencies."""
    lines = [f"digraph {json.dumps(c.name)} {{", '  node [shape=box, style="filled,rounded", fontname="monospace"];']
    for i in c:
        pen = ", penwidth=2" if i.is_root else ""
        color = _COLORS.get(i.opcode, "#ffffff")
        lines.append(f'  {json.dumps(i.name)} [label={json.dumps(_label(i))}, fillcolor="{color}"{pen}];')
    for i in c:
        lines += [f"  {json.dumps(o)} -> {json.dumps(i.name)};" for o in i.operands]
        lines += [f"  {json.dumps(p)} -> {json.dumps(i.name)} [style=dashed];" for p in i.control_predecessors]
    return "\n".join([*lines, "}"]) + "\n"


def _label(i: Instruction) -> str:
    called = i.attributes.get("calls") or i.attributes.get("to_apply")
    lines = [f"{i.opcode} {i.name}", str(i.shape)]
    return "\n".join([*lines, f"calls {called}"] if isinstance(called, str) else lines)
