"""The drawings of the stages: one function, cumulative probabilities of rows, on its way to a kernel for an H200."""

from __future__ import annotations

from collections.abc import Mapping

from docs.tools.canvas import CHIP, FAINT, INK, MEMORY, OTHER, STITCHED, XLA, Canvas

WIDTH = 720
KERNELS = {"max": "#5b8def", "sum": "#2f9fb3", "divide": "#9b6dd6", "scan": "#d0638f"}
"""A colour for each of XLA's kernels."""
BOXES = {
    "x": (20, 40, 70, "x", ""),
    "max": (100, 116, 96, "reduce max", "max"),
    "sub": (170, 40, 86, "subtract", "sum"),
    "exp": (290, 40, 100, "exponential", "sum"),
    "sum": (372, 116, 96, "reduce sum", "sum"),
    "div": (446, 40, 76, "divide", "divide"),
    "scan": (566, 40, 134, "reduce-window", "scan"),
}
"""The graph's operations (broadcasts left out): left, top, width, what it says, XLA's kernel."""
EDGES = (("x", "sub"), ("x", "max"), ("max", "sub"), ("sub", "exp"), ("exp", "div"), ("exp", "sum"), ("sum", "div"))


def _graph(c: Canvas, top: float, colours: Mapping[str, str]) -> None:
    """The graph, each operation in the colour of its kernel."""
    for a, b in (*EDGES, ("div", "scan")):
        (x1, y1, w1, *_), (x2, y2, *_) = BOXES[a], BOXES[b]
        if y1 == y2:
            c.arrow(x1 + w1, top + y1 + 15, x2, top + y2 + 15)
        elif y1 < y2:
            c.arrow(x1 + w1 * 0.7, top + y1 + 30, x2 + 30, top + y2)
        else:
            c.arrow(x1 + w1 * 0.7, top + y1, x2 + 20, top + y2 + 30)
    for x, y, w, words, kernel in BOXES.values():
        c.label(x, top + y, w, 30, words, colours.get(kernel, MEMORY), size=12)


def capture() -> Canvas:
    """Python to XLA's kernels."""
    c = Canvas(WIDTH, 210, "Capture: XLA's own compiler for the device makes kernels")
    c.box(20, 34, 290, 142, MEMORY, line=FAINT)
    c.lines(
        32,
        60,
        [
            "def cumulative(logits):",
            "    m = logits.max(-1, keepdims=True)",
            "    e = jnp.exp(logits - m)",
            "    s = e.sum(-1, keepdims=True)",
            "    return jnp.cumsum(e / s, -1)",
        ],
        size=12,
    )
    c.text(375, 92, "XLA's compiler", size=12)
    c.text(375, 128, "for the device", size=12)
    c.arrow(320, 104, 430, 104)
    rows = (
        ("max", "max of a row"),
        ("sum", "sum of exp(x - max)"),
        ("divide", "exp(x - max) / sum"),
        ("scan", "running sum"),
    )
    for i, (kernel, words) in enumerate(rows):
        c.label(440, 34 + i * 37, 260, 30, words, KERNELS[kernel], size=12)
    c.text(570, 198, "optimized HLO, as text: four kernels", size=12, fill=FAINT)
    return c


def parser() -> Canvas:
    """A line of HLO and its typed parts."""
    c = Canvas(WIDTH, 170, "hlo_parser: text becomes a typed module")
    pieces = (
        (20, 86, "%reduce.7", "name"),
        (118, 122, "f32[8192]{0}", "type and layout"),
        (252, 72, "reduce", "opcode"),
        (336, 132, "(%exp, %zero)", "operands"),
        (480, 220, "dimensions={1}, to_apply=%add", "attributes"),
    )
    c.text(
        20, 28, "%reduce.7 = f32[8192]{0} reduce(%exp, %zero), dimensions={1}, to_apply=%add", anchor="start", mono=True
    )
    for x, w, words, name in pieces:
        c.arrow(x + w / 2, 38, x + w / 2, 62, line=FAINT)
        c.label(x, 64, w, 34, words, CHIP, size=11)
        c.text(x + w / 2, 118, name, size=11, fill=FAINT)
    c.text(
        20,
        152,
        "What does not fit is refused here: types, shapes and attributes are verified.",
        size=12,
        anchor="start",
    )
    return c


def graph() -> Canvas:
    """The graph with XLA's kernels as colours."""
    c = Canvas(WIDTH, 220, "graph: fusions opened, one flat dataflow graph")
    c.text(20, 26, "Each operation once; its colour is the kernel of XLA that it came from.", anchor="start", size=12)
    _graph(c, 10, KERNELS)
    c.text(20, 200, "Between colours, values go through device memory.", anchor="start", size=12, fill=FAINT)
    return c


def explore() -> Canvas:
    """The same graph as one pattern."""
    c = Canvas(WIDTH, 236, "explore: one pattern, because a row needs nothing of other rows")
    c.text(20, 26, "Split into 8,192 rows, no operation needs anything of another row:", anchor="start", size=12)
    _graph(c, 16, dict.fromkeys(KERNELS, STITCHED))
    c.box(96, 42, 612, 134, "none", line=STITCHED, dash=True)
    c.text(402, 196, "one pattern, so one kernel", size=12)
    c.text(
        20, 222, "Where a split does not reach, the grid level or a cut follows.", anchor="start", size=12, fill=FAINT
    )
    return c


def schedule() -> Canvas:
    """Rows over blocks and warps."""
    c = Canvas(WIDTH, 320, "schedule: rows are laid over blocks and warps")
    c.text(110, 28, "8,192 rows of 1,024", size=12)
    for i in range(10):
        c.box(30, 40 + i * 20, 160, 16, CHIP if i < 4 else OTHER if i < 8 else MEMORY, line=FAINT)
    c.text(110, 256, "...", size=14)
    c.arrow(196, 70, 288, 70, line=CHIP)
    c.arrow(196, 150, 288, 200, line=OTHER)
    for top, colour, name in ((40, CHIP, "block 0: 8 rows"), (172, OTHER, "block 1: 8 rows")):
        c.box(292, top, 400, 116, colour, line=colour)
        c.text(304, top + 18, name, size=12, anchor="start")
        for i in range(3):
            c.text(304, top + 44 + i * 24, f"warp {i}", size=11, anchor="start", fill=FAINT)
            for lane in range(32):
                c.solid(350 + lane * 10, top + 34 + i * 24, 8, 14, colour)
        c.text(304, top + 106, "...", size=12, anchor="start")
    c.text(360, 311, "1,024 such blocks; each row is one warp's: 32 lanes, each with 32 of the row's numbers", size=12)
    return c


def emit() -> Canvas:
    """The passes of the kernel and what they keep. The exponential is cheaper to compute again than to keep."""
    c = Canvas(WIDTH, 268, "emit: three passes over a row, which is read once")
    c.memory(16, "device memory: logits")
    passes = (
        ("pass 1", "largest of the row", "reduce: shuffles"),
        ("pass 2", "exp(x - max), and its sum", "reduce: shuffles"),
        ("pass 3", "exp, divide, running sum", "scan: shuffles"),
    )
    for i, (name, what, how) in enumerate(passes):
        x = 30 + i * 230
        c.box(x, 72, 200, 74, STITCHED, line=STITCHED)
        c.text(x + 100, 92, name, size=11, fill=FAINT)
        c.text(x + 100, 113, what, size=13)
        c.text(x + 100, 134, how, size=11, fill=FAINT)
        if i < 2:
            c.arrow(x + 200, 108, x + 230, 108)
    c.arrow(130, 42, 130, 72)
    c.label(30, 178, 660, 32, "shared memory: the row of logits, kept by pass 1", CHIP, size=12)
    c.arrow(130, 146, 130, 178, line=CHIP)
    c.arrow(360, 178, 360, 146, line=CHIP)
    c.arrow(590, 178, 590, 146, line=CHIP)
    c.curve("M660 146 C 712 168, 712 214, 668 226")
    c.memory(228, "device memory: the result")
    return c


def compiling() -> Canvas:
    """One text for two compilers."""
    c = Canvas(WIDTH, 190, "compile: one text for two compilers")
    c.label(20, 64, 180, 60, "kernel.cpp\none C++ text", STITCHED)
    for y, compiler, result, where in (
        (28, "NVRTC", "PTX", "an NVIDIA GPU"),
        (118, "g++ or clang++", "shared object", "a CPU; and tests of a GPU's kernels"),
    ):
        c.arrow(200, 94, 268, y + 22)
        c.label(270, y, 130, 44, compiler, MEMORY)
        c.arrow(400, y + 22, 436, y + 22)
        c.label(438, y, 110, 44, result, CHIP)
        c.text(558, y + 20, where.split("; ")[0], size=12, anchor="start")
        for extra in where.split("; ")[1:]:
            c.text(
                558,
                y + 38,
                extra.replace("and tests of a GPU's kernels", "tests of GPU kernels"),
                size=12,
                anchor="start",
            )
    c.text(493, 100, "kept on disk", size=12, fill=FAINT)
    return c


def replay() -> Canvas:
    """The program that JAX runs in the end."""
    c = Canvas(WIDTH, 190, "replay: the kernel is one operation of an ordinary JAX program")
    c.text(20, 30, "what jax.jit runs", anchor="start", bold=True)
    for i, words in enumerate(("softmax", "sums of pieces", "carry", "carry", "add")):
        c.label(20 + i * 138, 42, 112, 34, words, XLA, size=12)
        if i < 4:
            c.arrow(132 + i * 138, 59, 158 + i * 138, 59)
    c.text(
        20,
        112,
        "what stitch_jit runs: traced by JAX, so grad, vmap, donation and dispatch are JAX's",
        anchor="start",
        bold=True,
    )
    c.label(20, 124, 112, 34, "any jax.lax", XLA, size=12)
    c.arrow(132, 141, 158, 141)
    c.label(158, 124, 402, 34, "jax.ffi.ffi_call: stitch_0_reduce_window_sum", STITCHED, size=12)
    c.arrow(560, 141, 586, 141)
    c.label(586, 124, 112, 34, "any jax.lax", XLA, size=12)
    c.text(360, 180, "what is not stitched stays jax.lax, which XLA fuses as before", size=12, fill=FAINT)
    return c


def overview() -> Canvas:
    """All stages in a row."""
    c = Canvas(WIDTH, 150, "From a function to a kernel")
    names = ("capture", "hlo_parser", "graph", "explore", "schedule", "emit", "compile", "replay")
    values = (
        "HLO text",
        "Module",
        "Graph",
        "FusionPlan",
        "Scheduled-\nKernel",
        "C++",
        "PTX, or a\nlibrary",
        "a JAX\nfunction",
    )
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        x = 14 + i * 87.5
        c.label(x, 40, 76, 34, name, STITCHED, size=12)
        for k, row in enumerate(value.split("\n")):
            c.text(x + 38, 100 + k * 15, row, size=11, fill=INK)
        if i < len(names) - 1:
            c.arrow(x + 76, 57, x + 87, 57)
    c.text(14, 26, "stage", size=11, anchor="start", fill=FAINT)
    c.text(14, 140, "what it returns, which the next one takes", size=11, anchor="start", fill=FAINT)
    return c


DRAWINGS = {
    "stage_overview": overview,
    "stage_capture": capture,
    "stage_parser": parser,
    "stage_graph": graph,
    "stage_explore": explore,
    "stage_schedule": schedule,
    "stage_emit": emit,
    "stage_compile": compiling,
    "stage_replay": replay,
}
