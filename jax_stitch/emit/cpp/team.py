"""Loops in teams as C++."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jax_stitch.emit.cpp import scalar
from jax_stitch.emit.cpp.lines import block, extent
from jax_stitch.emit.cpp.products import product_line
from jax_stitch.emit.cpp.values import Kind, ctype
from jax_stitch.ir.indices.variables import PLACE, RUN, TERM
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Op, Value
from jax_stitch.kernel.literals import HALF
from jax_stitch.kernel.threads import How

if TYPE_CHECKING:
    from jax_stitch.emit.cpp.statements import Statements

TeamStatement = st.Swap | st.Add | st.Items | st.Sums


def team_lines(writer: Statements, s: TeamStatement) -> list[str]:
    """Return the text of a statement of a loop in teams."""
    lines = _lines(writer, s)
    return block("ST_APART", lines, "};") if isinstance(s, st.Items | st.Sums) and s.outlined else lines


def _lines(writer: Statements, s: TeamStatement) -> list[str]:
    match s:
        case st.Swap(name, dtype):
            is_stored = writer.values.names[name].in_memory
            return [f"ST_SWAP({scalar.STORAGE[dtype] if is_stored else ctype(dtype)}, {name}, next_{name})"]
        case st.Add():
            return [_add(writer, s)]
        case st.Items(in_squares=True):
            return _squares(writer, s)
        case st.Items(run, lane, _, body, divided):
            how = "_IN_TURN" if lane.how is How.SERIAL else "_DIVIDED" if divided else ""
            return block(f"ST_EACH_ITEM{how}({extent(run, RUN)}, {extent(lane, PLACE)})", writer.lines(body))
        case st.Sums():
            if s.fragments and all(steps.term.how is How.REGISTERS for steps in s.steps):
                return _fragments(writer, s)
            return _splits(writer, s) if s.split > 1 else _chunks(writer, s)


def _squares(writer: Statements, s: st.Items) -> list[str]:
    """Return a sweep's text in squares."""
    loads: list[str] = []
    for square in s.squares:
        (lane,) = (v for v in square.element.at.variables() if v.name == s.lane.variable)
        cell, stride = writer.values.cell(square.element), square.element.at.stride_of(lane)
        loads.append(f"ST_ACROSS({ctype(square.dtype)}, {square.name}, &{cell}, {stride})")
        writer.declare(square.name, Kind.SQUARE, square.dtype)
    places = block("ST_PLACES_OF_SQUARE", writer.lines(s.body))
    return block(f"ST_EACH_SQUARE({extent(s.run, RUN)}, {extent(s.lane, PLACE)})", [*loads, *places])


def _add(writer: Statements, s: st.Add) -> str:
    texts = {inside.name: writer.values.text(inside.of) for inside in s.starts}
    tests = [f"int64_t({texts[i.name]}) >= 0 && int64_t({texts[i.name]}) <= {i.high}" for i in s.starts]
    writer.values.indices.update({name: f"index({text})" for name, text in texts.items()})
    condition = f"if ({' && '.join(tests)}) " if tests else ""
    return f"{condition}ST_ADD({writer.values.cell(s.target)}, {writer.values.text(s.value)})"


def array_lines(writer: Statements, s: st.Allocate) -> list[str]:
    """Return the declaration of an array of a team."""
    t = scalar.STORAGE[s.dtype] if s.in_memory else ctype(s.dtype)
    start = f"reinterpret_cast<{t}*>(shared + {s.offset})"
    if s.scratch:
        start = f"{s.scratch} + row * {s.copies * s.size}"
    if s.copies == 1:
        return [f"{t}* const {s.name} = {start};"]
    writer.declare(f"next_{s.name}", Kind.ARRAY, s.dtype, in_memory=s.in_memory)
    return [f"{t}* {s.name} = {start};", f"{t}* next_{s.name} = {s.name} + {s.size};"]


def _sums(writer: Statements, s: st.Sums, macro: str, kind: Kind, width: int) -> list[str]:
    lines: list[str] = []
    for sum_ in s.sums:
        first = "" if sum_.first is None else f", {_first(writer, sum_, sum_.first)}"
        writer.declare(sum_.name, kind, sum_.dtype)
        lines.append(f"{macro}{'' if first else '_EMPTY'}({_functor(sum_)}::T, {sum_.name}, {width}{first})")
    return lines


def _first(writer: Statements, sum_: st.Sum, first: Value) -> str:
    return writer.first(sum_.combiner, first) if sum_.combiner else "0"


def _functor(sum_: st.Sum) -> str:
    return sum_.combiner or f"st::Sum<{ctype(sum_.dtype)}>"


def _fragments(writer: Statements, s: st.Sums) -> list[str]:
    """Return the text of products by tensor cores."""
    sizes, lines = ", ".join(map(str, s.fragments)), list[str]()
    for steps in s.steps:
        for product in steps.body:
            assert isinstance(product, st.Apply)
            (name,), (left, right) = product.cells, product.operands
            dtype = left.dtype if isinstance(left, Element | Op) else ""
            matrix = f"st::halves<{scalar.STORAGE[dtype]}>" if dtype in HALF else "st::tf32"
            factors = [
                _factor(writer, axis, steps.term, value, are_pairs=bool(pairs))
                for axis, value, pairs in zip((s.run, s.lane), (left, right), product.sizes[2:], strict=True)
            ]
            lines.append(f"ST_MULTIPLY({matrix}, {name}, {sizes}, {extent(steps.term, TERM)}, {', '.join(factors)})")
            writer.declare(name, Kind.FRAGMENT, "f32")
    lines += block(f"ST_PLACES_OF_FRAGMENT({sizes})", writer.lines(s.finish))
    return block(f"ST_EACH_FRAGMENT({extent(s.run, RUN)}, {extent(s.lane, PLACE)}, {sizes})", lines)


def _factor(writer: Statements, axis: st.Axis, term: st.Axis, value: Value, *, are_pairs: bool) -> str:
    """Return a factor as a function of its place and step; of halves that lie side by side, two steps at a time."""
    text = writer.values.text(value)
    if are_pairs:
        assert isinstance(value, Element)
        text = f"st::pair_at(&{writer.values.cell(value)})"
    return f"[&](const index {axis.variable}, const index {term.variable}) {{ return {text}; }}"


def _chunks(writer: Statements, s: st.Sums) -> list[str]:
    lines = _sums(writer, s, "ST_TILE", Kind.TILE, s.width)
    for steps in s.steps:
        in_registers = steps.term.how is How.REGISTERS
        products = [product_line(writer, s, steps, line) for line in steps.body] if in_registers else []
        lanes = [] if in_registers else block("ST_LANES", writer.lines(steps.body))
        if steps.joins is None:
            lines += products or block(f"ST_STEPS({extent(steps.term, TERM)})", lanes)
            continue
        steps_of_block = products or block("ST_STEPS_OF_RUN", lanes)
        joins = _joins(writer, steps, steps.joins, steps.joins.block, "ST_LANES")
        lines += block(f"ST_STEP_RUNS({extent(steps.term, TERM)}, {steps.joins.block})", [*steps_of_block, *joins])
    lines += block("ST_LANES", writer.lines(s.finish))
    return block(f"ST_EACH_CHUNK{_divided(s)}({extent(s.run, RUN)}, {extent(s.lane, PLACE)}, {s.width})", lines)


def _divided(s: st.Sums) -> str:
    return "_DIVIDED" if s.divided else ""


def _splits(writer: Statements, s: st.Sums) -> list[str]:
    lines = _sums(writer, s, "ST_SPLIT", Kind.SPLIT, s.split)
    has_rest = any(_rest(writer, s, steps) for steps in s.steps)
    if has_rest:
        firsts = ((sum_, sum_.first) for sum_ in s.sums if sum_.first is not None)
        lines += [f"{_functor(sum_)}::T {sum_.name}_rest = {_first(writer, sum_, first)};" for sum_, first in firsts]
    for steps in s.steps:
        body, count = writer.lines(steps.body), extent(steps.term, TERM)
        if steps.joins is None:
            whole = count - _rest(writer, s, steps)
            lines += block(f"ST_SPLIT_STEPS({whole}, {s.split})", body)
            if whole < count:
                lines += _in_rest(writer, s, steps, whole)
            continue
        steps_of_block = block(f"ST_SPLIT_STEPS_OF_RUN({s.split})", body)
        joins = _joins(writer, steps, steps.joins, steps.joins.block * s.split, f"ST_EACH_PART({s.split})")
        lines += block(f"ST_SPLIT_RUNS({count}, {s.split}, {steps.joins.block})", [*steps_of_block, *joins])
    combine = "ST_COMBINE_REST" if has_rest else "ST_COMBINE"
    for sum_ in (sum_ for sum_ in s.sums if not sum_.of_block):
        lines.append(f"{combine}({_functor(sum_)}, {sum_.name}, {s.split})")
        writer.declare(sum_.name, Kind.LOCAL, sum_.dtype)
    lines += block("ST_FIRST_PART", writer.lines(s.finish))
    return block(f"ST_EACH_SPLIT{_divided(s)}({extent(s.run, RUN)}, {extent(s.lane, PLACE)}, {s.split})", lines)


def _rest(writer: Statements, s: st.Sums, steps: st.Steps) -> int:
    """Return how many of the last steps do not fill a vector of one thread. Written to some of its lanes, they would
    make the load of all lanes wait until these writes have left the store buffer.
    """
    count = steps.term.extent
    return count % s.split if writer.is_one_thread and steps.joins is None and count > s.split else 0


def _in_rest(writer: Statements, s: st.Sums, steps: st.Steps, whole: int) -> list[str]:
    """Return the steps from ``whole`` on, in order."""
    for sum_ in s.sums:
        writer.declare(sum_.name, Kind.REST, sum_.dtype)
    lines = block(f"ST_STEPS_FROM({whole}, {extent(steps.term, TERM)})", writer.lines(steps.body))
    for sum_ in s.sums:
        writer.declare(sum_.name, Kind.SPLIT, sum_.dtype)
    return lines


def _joins(writer: Statements, steps: st.Steps, joins: st.Joins, size: int, each: str) -> list[str]:
    """Return what follows each block of ``size`` steps, each block of such blocks, and the last step."""
    lines: list[str] = []
    for k, step in enumerate(joins.steps):
        inner = block(each, writer.lines(step.body))
        last = f"from_ + {size} >= {extent(steps.term, TERM)}"
        lines += block(f"if (runs_ % {joins.block**k} == 0 || {last})", inner) if k else inner
    return lines
