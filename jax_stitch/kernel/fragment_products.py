"""Products by tensor cores: the steps of sweeps that warps share out in fragments become ``multiply`` intrinsics, whose
factors change along the runs alone and along the lanes alone.

A sweep whose steps are something else is done place by place, each by one thread, as if it had no fragments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from jax_stitch.ir.indices.expr import Var
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Fused, IndexValue, Op, Ref, Value
from jax_stitch.kernel.literals import HALF
from jax_stitch.kernel.model import Kernel, Part
from jax_stitch.kernel.threads import How
from jax_stitch.kernel.walk import map_sweeps_of, nodes
from jax_stitch.util.values import replace


def fragment_products(kernel: Kernel) -> Kernel:
    """Return the kernel with the products of sweeps in fragments as intrinsics."""
    return replace(kernel, parts=tuple(map(_of_part, kernel.parts)))


def _of_part(part: Part) -> Part:
    stored = {n.name for n in part.before if isinstance(n, st.Allocate) and n.in_memory}

    def rewrite(s: st.Items | st.Sums) -> st.Body:
        return (_multiplied(s, stored),) if isinstance(s, st.Sums) and s.fragments else (s,)

    return map_sweeps_of(part, rewrite)


def _multiplied(s: st.Sums, stored: Collection[str]) -> st.Sums:
    made: list[st.Steps] = []
    for steps in s.steps:
        products = _products(s, steps, stored)
        if products is None:
            return replace(s, fragments=())
        made.append(replace(steps, term=replace(steps.term, how=How.REGISTERS), body=products))
    return replace(s, steps=tuple(made))


def _products(s: st.Sums, steps: st.Steps, stored: Collection[str]) -> tuple[st.Apply, ...] | None:
    """Return the products of steps; None of steps that do something else."""
    values: dict[str, Value] = {}
    products: list[st.Apply] = []
    if steps.joins is not None:
        return None
    for line in steps.body:
        match line:
            case st.Define(name, _, value):
                values[name] = value
            case st.Assign(Ref(name) as target, Fused(_, left, right, addend)) if addend == target:
                factors = [_inlined(values, v) for v in (left, right)]
                factors.sort(key=lambda f: s.lane.variable in _variables(f))
                if s.lane.variable in _variables(factors[0]) or s.run.variable in _variables(factors[1]):
                    return None
                pairs = (int(_are_pairs(f, steps.term, stored)) for f in factors)
                products.append(st.Apply("multiply", (name,), sizes=(1, 1, *pairs), operands=tuple(factors)))
            case _:
                return None
    return tuple(products)


def _inlined(values: Mapping[str, Value], value: Value) -> Value:
    """Return a value with the steps' own names in it replaced by what they stand for."""
    match value:
        case Ref(name):
            return _inlined(values, values[name]) if name in values else value
        case Op("reduce-precision", dtype, (operand,)) if dtype in HALF:  # to what it is already
            return _inlined(values, operand)
        case Op(operands=operands):
            return replace(value, operands=tuple(_inlined(values, o) for o in operands))
        case _:
            return value


def _are_pairs(value: Value, term: st.Axis, stored: Collection[str]) -> bool:
    """Return whether neighbouring steps are neighbouring halves in memory, from an even place on."""
    if not isinstance(value, Element) or value.array not in stored or value.at.offset % 2:
        return False
    strides = dict(value.at.terms)
    steps = [s for atom, s in strides.items() if isinstance(atom, Var) and atom.name == term.variable]
    return steps == [1] and sum(s % 2 for s in strides.values()) == 1


def _variables(value: Value) -> set[str]:
    return {v.name for e in nodes(value) if isinstance(e, Element | IndexValue) for v in e.at.variables()}
