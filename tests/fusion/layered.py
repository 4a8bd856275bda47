"""Random graphs for planners: elementwise operations, reductions, broadcasts and products of a few array shapes."""

from __future__ import annotations

from random import Random

from jax_stitch.graph import Graph
from tests.fusion import forced

ADD = "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
ADD += "  ROOT %s = f32[] add(%a, %b)\n}\n"


def random_graph(rng: Random, operations: int) -> Graph:
    """A graph of ``operations`` operations and the zeros, parameters and results that they need.

    Every value that nobody reads is a result, and now and then one more.
    """
    rows, columns = rng.choice(((64, 64), (512, 512), (4096, 1024), (8, 100_000)))
    full, names = f"{rows},{columns}", []
    shapes = {"full": full, "row": str(rows), "column": str(columns)}
    lines = ["  %zero = f32[] constant(0)", f"  %p0 = f32[{full}] parameter(0)", f"  %p1 = f32[{full}] parameter(1)"]
    lines += [f"  %p2 = f32[{columns}] parameter(2)", f"  %square = f32[{columns},{columns}] parameter(3)"]
    values = [("p0", "full"), ("p1", "full"), ("p2", "column")]
    read: set[str] = set()

    def use(shape: str) -> str | None:
        found = [name for name, s in values[-6:] if s == shape] or [name for name, s in values if s == shape]
        if not found:
            return None
        read.add(name := rng.choice(found))
        return name

    while len(names) < operations:
        name, kind = f"n{len(names)}", rng.random()
        shape = rng.choice(("full", "full", "full", "row", "column"))
        if kind < 0.35 and (a := use(shape)) and (b := use(shape)):
            text = f"f32[{shapes[shape]}] {rng.choice(('add', 'multiply', 'maximum'))}(%{a}, %{b})"
        elif kind < 0.55 and (a := use(shape)):
            text = f"f32[{shapes[shape]}] {rng.choice(('exponential', 'negate', 'tanh', 'rsqrt'))}(%{a})"
        elif kind < 0.75 and (a := use("full")):
            shape, axis = rng.choice((("row", 1), ("column", 0)))
            text = f"f32[{shapes[shape]}] reduce(%{a}, %zero), dimensions={{{axis}}}, to_apply=%add"
        elif kind < 0.95 and shape != "full" and (a := use(shape)):
            text = f"f32[{full}] broadcast(%{a}), dimensions={{{int(shape == 'column')}}}"
            shape = "full"
        elif kind >= 0.95 and (a := use("full")):
            text = f"f32[{full}] dot(%{a}, %square), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
            shape = "full"
        else:
            continue
        lines.append(f"  %{name} = {text}")
        names.append(name)
        values.append((name, shape))
    types = {name: f"f32[{shapes[shape]}]" for name, shape in values}
    results = [n for n in names if n not in read or rng.random() < 0.05]
    lines.append(f"  ROOT %out = ({', '.join(types[n] for n in results)}) tuple({', '.join('%' + n for n in results)})")
    return forced.graph_from("\n".join(lines), ADD)
