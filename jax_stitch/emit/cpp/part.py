"""A part as a C++ function, and what must stand before it at file scope."""

from __future__ import annotations

from jax_stitch.emit.cpp import scalar
from jax_stitch.emit.cpp.lines import block, comment, indent
from jax_stitch.emit.cpp.statements import Statements
from jax_stitch.emit.cpp.values import Kind, Named, Values, combiner_text, ctype, literal
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element
from jax_stitch.kernel.model import Comparator, Parameter, Part, RowShape, TeamShape
from jax_stitch.kernel.walk import nodes


def function(part: Part, name: str) -> str:
    """Return the function of a part."""
    shape, index = part.shape, "int64_t" if part.wide else "int32_t"
    spread = isinstance(shape, TeamShape) and shape.spread
    helped = isinstance(shape, TeamShape) and shape.pieces > 1
    parameters = [f"const {index} block", *map(_parameter, part.parameters)]
    parameters += ["char* const own_shared_", "void* const meeting_"] if helped else ["char* const shared"]
    parameters += ["unsigned long long* const arrivals"] * spread
    writer = Statements(part)
    lines = [
        *map(comment, part.comments),
        f"ST_PART {name}({', '.join(parameters)}) {{",
        f"  using index = {index};",
        *(f"  ST_SPACED({stride})" for stride in _hidden(part)),
    ]
    before = indent(writer.lines(part.before))
    if isinstance(shape, TeamShape):
        lines += [
            f"  {_team(shape, part)}",
            f"  const index row = {'0' if helped else 'block'};",
            f"  (void)row, (void)shared{', (void)arrivals' if spread else ''};",
            *before,
            *indent(writer.lines(part.body)),
        ]
    else:
        group = f"ST_GROUP(turn_, {shape.sequence})"
        lines += [
            f"  {_split(shape)}",
            *before,
            *indent(block(f"ST_EACH_TURN({shape.sequence})", [group, *writer.lines(part.body)])),
        ]
    return "\n".join([*lines, *indent(writer.lines(part.after)), "}"])


def _hidden(part: Part) -> list[int]:
    """Return the strides that are variables in the part's text."""
    elements = (n for s in part.body for n in nodes(s) if isinstance(n, Element))
    return sorted({e.hidden for e in elements} - {0})


def _team(shape: TeamShape, part: Part) -> str:
    if shape.pieces == 1:
        return f"ST_{'SPREAD_' if shape.spread else ''}TEAM({shape.threads})"
    steps = [s for loop in part.body if isinstance(loop, st.For) for s in loop.body]
    return f"ST_HELPED_TEAM({shape.pieces}, {sum(isinstance(s, st.Items | st.Sums) and s.divided for s in steps)})"


def _parameter(p: Parameter) -> str:
    access = "ST_IN_PLACE" if p.in_place else "ST_CROSSING" if p.crossing else "ST_RESTRICT"
    read_only = not p.written and not p.scratch
    return f"{'const ' if read_only else ''}{scalar.STORAGE[p.dtype]}* {access} {p.name}"


def _split(shape: RowShape) -> str:
    if shape.exchange_size:
        met = f"{shape.cluster}, {shape.exchange_offset}, {shape.exchange_size}"
        return f"ST_SPLIT_CLUSTER({shape.rows}, {shape.lanes}, {met})"
    if shape.row_vector > 1:
        sizes = f"{shape.rows}, {shape.period}, {shape.rows_per_block}, {shape.lanes}, {shape.row_vector}"
        return f"ST_SPLIT_ROW_VECTORS({sizes})"
    order = "LANES" if shape.lanes_fastest else "ROWS"
    return f"ST_SPLIT_{order}({shape.rows}, {shape.period}, {shape.rows_per_block}, {shape.lanes})"


def head(part: Part) -> str:
    """Return functors and tables."""
    texts = [combiner_text(c) for c in part.combiners] + [_comparator_text(c) for c in part.comparators]
    for table in part.tables:
        values = ", ".join(map(literal, table.values))
        texts.append(f"ST_TABLE {ctype(table.dtype)} {table.name}[{len(table.values)}] = {{{values}}};")
    return "\n".join(texts)


def _comparator_text(order: Comparator) -> str:
    """Return a functor with the type ``T`` of an element, the ``Arrays`` in which the elements' fields stand, and
    ``bool before(T, T)``, a strict order.
    """
    numbered = list(enumerate(map(ctype, order.dtypes)))
    before = "precedes(a, b)"
    if order.stable:
        last = len(numbered) - 1
        before += f" || (!precedes(b, a) && a.f{last} < b.f{last})"
    return "\n".join(
        [
            f"struct {order.name} {{",
            f"  struct T {{ {' '.join(f'{t} f{k};' for k, t in numbered)} }};",
            f"  struct Arrays {{ {' '.join(f'{t}* f{k};' for k, t in numbered)} }};",
            "  ST_MEMBER T get(const Arrays& from, int at) {",
            f"    return {{{', '.join(f'from.f{k}[at]' for k, _ in numbered)}}};",
            "  }",
            "  ST_MEMBER void put(const Arrays& to, int at, const T& value) {",
            f"    {' '.join(f'to.f{k}[at] = value.f{k};' for k, _ in numbered)}",
            "  }",
            "  ST_MEMBER bool precedes(const T& a, const T& b) {",
            *(f"    {line}" for line in _compared(order)),
            "  }",
            f"  ST_MEMBER bool before(const T& a, const T& b) {{ return {before}; }}",
            "};",
        ]
    )


def _compared(order: Comparator) -> list[str]:
    values = Values((), True)
    values.names = {side: Named(Kind.LOCAL, order.name) for side in "ab"}
    lines: list[str] = []
    for d in order.body:
        lines.append(f"const {ctype(d.dtype)} {d.name} = {values.text(d.value)};")
        values.names[d.name] = Named(Kind.LOCAL, d.dtype)
    return [*lines, f"return {values.text(order.result)};"]
