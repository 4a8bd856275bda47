"""The names of schedules: the 2019 paper's template notation (section 5.2), printed in plans and parsed from what users
ask for.

``reduce_sum[GRID_1024-CTA_8,WARP_32]S`` says of the part that computes ``reduce_sum`` how its two dimensions, the rows
and the places of a row, are tiled, level by level: 1,024 blocks with 8 rows each at a time, and a warp's 32 threads
along each row. ``S``: some results are cached in shared memory. A row's lanes that are neighbours in a warp are
``WARP``, those of several warps ``CTA_4-WARP_32``; where neighbouring threads have neighbouring rows instead, lanes are
``CTA`` alone. ``THREAD`` is what one thread does in turn. ``CLUSTER_8-CTA_32-WARP_32``: the lanes are the threads of 8
blocks, a thread-block cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from jax_stitch.analysis.patterns.pattern import Pattern
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.graph.model import Graph, Node
from jax_stitch.schedule.model import Order, ScheduledKernel, Split
from jax_stitch.util.options.template_error import TemplateError

LEVELS = ("GRID", "CLUSTER", "CTA", "WARP", "THREAD")
_NAMED, _LONGEST = 3, 48
"""Parts, and letters, in a kernel's name."""
_SCHEDULE = re.compile(r"\s*(\w+)\s*\[([^\]]*)\]\s*(S?)\s*$")


class Tile(Struct, frozen=True):
    """One level of a dimension's tiling; ``size`` is ``None`` where the user left it open."""

    level: str
    size: int | None = None

    def __str__(self) -> str:
        return self.level if self.size is None else f"{self.level}_{self.size}"

    def admits(self, other: Tile) -> bool:
        return self.level == other.level and self.size in (None, other.size)


class Template(Struct, frozen=True):
    """The schedule of one part: the tiles of its rows and of the places of a row, outermost first."""

    name: str
    rows: tuple[Tile, ...]
    places: tuple[Tile, ...]
    shared: bool = False

    def __str__(self) -> str:
        dims = ",".join("-".join(map(str, tiles)) for tiles in (self.rows, self.places))
        return f"{self.name}[{dims}]{'S' if self.shared else ''}"

    def admits(self, other: Template) -> bool:
        """Return whether ``other``, a schedule that there is, is one that this asks for: sizes left open may be any."""
        mine, its = (*self.rows, *self.places), (*other.rows, *other.places)
        same = len(self.rows) == len(other.rows) and len(mine) == len(its)
        return same and all(a.admits(b) for a, b in zip(mine, its, strict=True))


_ACROSS = ("reduce", "partial-reduce", "reduce-window", "sort", "while")
"""Operations that a part is there for: the others work on each element by itself."""


_SCANS = {"cumsum": "reduce_window_sum", "cummax": "reduce_window_max", "cummin": "reduce_window_min"}
"""What scans are called by jax 0.11 on a GPU, and by all others: a template names a part under every version."""


def part_name(graph: Graph, pattern: Pattern) -> str:
    """Return the name of a part: its largest reduction, scan, sort or loop, or else the largest of what it writes, as
    HLO names it but for its number, which is another on another device. Several parts may have one name.

    The largest moves the most bytes. The name does not depend on the order of the operations.
    """
    inside = [graph[i] for i in pattern.nodes]
    nodes = [n for n in inside if n.op in _ACROSS] or [graph[i] for i in pattern.outputs if i in pattern.nodes]
    return min((-_moved(graph, n), n.op, _word(n)) for n in nodes or inside)[2]


def kernel_name(graph: Graph, kernel: Iterable[Pattern]) -> str:
    """Return the name of a kernel: its parts, the largest first, each name once, as many as can be read."""
    largest: dict[str, int] = {}
    for pattern in kernel:
        name = part_name(graph, pattern)
        largest[name] = max(largest.get(name, 0), sum(_moved(graph, graph[i]) for i in pattern.nodes))
    names = sorted(largest, key=lambda name: (-largest[name], name))[:_NAMED]
    return "_".join(names)[:_LONGEST].rstrip("_")


def _moved(graph: Graph, node: Node) -> int:
    return node_bytes(node) + sum(node_bytes(graph[o]) for o in dict.fromkeys(node.operands))


def _word(node: Node) -> str:
    name = re.split(r"\.(?=\d|clone|remat)", node.name or node.op)[0]  # what XLA and we put behind it
    word = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_0123456789") or "kernel"
    return _SCANS.get(word, word) if node.op == "reduce-window" else word


def template_of(name: str, split: Split, shared: bool = False) -> Template:
    """Return the name of a split."""
    rows = [Tile("GRID", split.blocks)]
    if split.rows_per_block > split.row_vector:
        rows.append(Tile("CTA", split.rows_per_block // split.row_vector))
    if split.row_vector * split.sequence > 1:
        rows.append(Tile("THREAD", split.row_vector * split.sequence))
    lanes = split.lanes // split.cluster
    if lanes == 1:
        places = [Tile("THREAD")]
    elif split.order is Order.ROWS:
        places = [Tile("CTA", lanes)]
    elif lanes <= 32:
        places = [Tile("WARP", lanes)]
    else:
        places = [Tile("CTA", lanes // 32), Tile("WARP", 32)]
    if split.cluster > 1:
        places.insert(0, Tile("CLUSTER", split.cluster))
    return Template(name, tuple(rows), tuple(places), shared)


def templates_of(kernel: ScheduledKernel) -> tuple[Template, ...]:
    """Return the schedules of a kernel's parts."""
    return tuple(template_of(part_name(kernel.graph, p.pattern), p.split, p.caches) for p in kernel.parts)


def parse_templates(text: str) -> tuple[Template, ...]:
    """Return the schedules of a text, separated by semicolons; raise ``TemplateError``, which shows what could not be
    read.
    """
    return tuple(_parse(piece) for piece in text.split(";") if piece.strip())


def _parse(text: str) -> Template:
    match = _SCHEDULE.match(text)
    if match is None:
        raise TemplateError(f"{text.strip()!r} is no schedule; one looks like reduce_sum[GRID-CTA_8,WARP_32]S")
    dims = [tuple(_tile(t, text) for t in dim.split("-")) for dim in match.group(2).split(",")]
    if len(dims) != 2:
        raise TemplateError(f"{text.strip()!r} tiles {len(dims)} dimensions; there are two: rows, and places of a row")
    return Template(match.group(1), dims[0], dims[1], bool(match.group(3)))


def _tile(text: str, where: str) -> Tile:
    level, _, size = text.strip().partition("_")
    if level not in LEVELS or (size and not size.isdigit()) or (text.strip().endswith("_")):
        raise TemplateError(
            f"{text.strip()!r} in {where.strip()!r} is none of {', '.join(LEVELS)}, with or without _SIZE"
        )
    return Tile(level, int(size) if size else None)


def wanted(templates: Iterable[Template], name: str) -> Template | None:
    """Return the template that a user gave for the part of that name; the last, where there are several."""
    return next((t for t in reversed(tuple(templates)) if t.name == name), None)


def pick(asked: Template, splits: Sequence[Split]) -> Split:
    """Return the first of a part's possible splits that ``asked`` admits; raises ``TemplateError`` with the names of
    all.
    """
    for split in splits:
        if asked.admits(template_of(asked.name, split)):
            return split
    known = "\n  ".join(dict.fromkeys(str(template_of(asked.name, s)) for s in splits))
    raise TemplateError(f"{asked} is no schedule of {asked.name} here. There are:\n  {known}")


def check_names(templates: Iterable[Template], kernels: Iterable[ScheduledKernel]) -> None:
    """Raise ``TemplateError`` for a template of a part that no kernel has."""
    known = [t.name for kernel in kernels for t in templates_of(kernel)]
    for asked in templates:
        if asked.name not in known:
            parts = ", ".join(dict.fromkeys(known)) or "none: nothing is stitched"
            raise TemplateError(f"{asked}: no part of a kernel is called {asked.name}. There are: {parts}")
