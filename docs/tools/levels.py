"""The drawings of the composition levels: how the parts of a kernel meet, and where a value between them lives."""

from __future__ import annotations

from docs.tools.canvas import CHIP, FAINT, INK, MEMORY, OTHER, STITCHED, XLA, Canvas

WIDTH = 720


def packing() -> Canvas:
    """Three launches, and one whose blocks belong to three parts."""
    c = Canvas(WIDTH, 250, "Packing: three kernels share one launch")
    parts = ((XLA, "weights", 8), (CHIP, "bias", 2), (OTHER, "filter", 4))
    c.text(20, 30, "jax.jit: a launch for each array", anchor="start", bold=True)
    x = 20.0
    for colour, name, blocks in parts:
        c.text(x, 66, "launch", size=11, anchor="start", fill=FAINT)
        c.line(x, 72, x, 104)
        x += 44
        c.label(x, 74, blocks * 20 + 26, 30, name, colour, size=12)
        x += blocks * 20 + 46
    c.text(20, 144, "stitched: one launch; each block belongs to one part", anchor="start", bold=True)
    c.text(20, 180, "launch", size=11, anchor="start", fill=FAINT)
    c.line(20, 186, 20, 218)
    x = 64.0
    for colour, name, blocks in parts:
        for i in range(blocks):
            c.box(x + i * 24, 188, 20, 30, colour, line=colour)
        c.text(x + blocks * 12 - 2, 236, name, size=12)
        x += blocks * 24 + 6
    c.text(700, 182, "each box is a block of threads", size=11, anchor="end", fill=FAINT)
    return c


def thread() -> Canvas:
    """A chain of operations in each thread."""
    c = Canvas(WIDTH, 280, "Thread composition: values stay in registers")
    c.memory(20, "device memory: x")
    for i in range(4):
        x = 30 + i * 172
        c.arrow(x + 72, 46, x + 72, 72)
        c.box(x, 72, 144, 132, STITCHED, line=STITCHED)
        c.text(x + 72, 90, f"thread {i}: column {i}", size=11, fill=FAINT)
        c.label(x + 12, 98, 120, 26, "sum of a column", "none", size=12)
        c.label(x + 42, 136, 60, 22, "register", CHIP, size=11)
        c.arrow(x + 72, 124, x + 72, 136, line=CHIP)
        c.arrow(x + 72, 158, x + 72, 168, line=CHIP)
        c.label(x + 12, 168, 120, 26, "x / sum", "none", size=12)
        c.arrow(x + 72, 204, x + 72, 230)
    c.memory(230, "device memory: the result")
    return c


def warp() -> Canvas:
    """A reduction by shuffles among the lanes of a warp."""
    c = Canvas(WIDTH, 330, "Warp composition: lanes exchange values by shuffles")
    c.memory(20, "device memory: a row of x, neighbouring lanes read neighbouring elements")
    lanes = [76 + i * 80 for i in range(8)]
    for step, y in enumerate((84, 140, 196, 252)):
        for x in lanes:
            c.box(x - 20, y, 40, 24, CHIP if step else STITCHED, line=CHIP if step else STITCHED)
        if step < 3:
            distance = 4 >> step
            for i, x in enumerate(lanes):
                c.arrow(x, y + 24, x, y + 56, line=FAINT)
                c.arrow(x, y + 24, lanes[i ^ distance], y + 56, line=CHIP)
    for i, x in enumerate(lanes):
        c.arrow(x, 46, x, 84)
        c.text(x, 101, f"lane {i}", size=11)
        c.text(x, 269, "sum", size=11)
        c.arrow(x, 276, x, 290)
    c.memory(292, "device memory: the result; x is still in the lanes' registers and is not read again")
    for y, d in ((124, 4), (180, 2), (236, 1)):
        c.text(12, y, f"+{d}", size=11, anchor="start", fill=FAINT)
    return c


def block() -> Canvas:
    """Warps that meet in shared memory, behind a barrier."""
    c = Canvas(WIDTH, 330, "Block composition: warps meet in shared memory")
    c.memory(20, "device memory: a long row of x")
    c.box(20, 62, 680, 220, STITCHED, line=STITCHED)
    c.text(32, 80, "one block", size=11, anchor="start", fill=FAINT)
    for i in range(4):
        x = 50 + i * 162
        c.arrow(x + 66, 46, x + 66, 90)
        c.label(x, 90, 132, 40, f"warp {i}: sum of\nits part of the row", "none", size=12)
        c.arrow(x + 66, 130, x + 66, 150, line=CHIP)
        c.arrow(x + 66, 176, x + 66, 226, line=CHIP)
        c.label(x, 226, 132, 40, f"warp {i}: result for\nits part of the row", "none", size=12)
        c.arrow(x + 66, 266, x + 66, 294)
    c.label(50, 150, 618, 26, "shared memory: four partial sums", CHIP, size=12)
    c.line(36, 202, 684, 202, line=INK, dash=True)
    c.text(360, 197, "__syncthreads()", size=12, mono=True)
    c.memory(294, "device memory: the result")
    return c


def cluster() -> Canvas:
    """Neighbouring blocks that share a row, and write into each other's shared memory."""
    c = Canvas(WIDTH, 320, "Cluster composition: blocks write into each other's shared memory")
    c.memory(20, "device memory: one very long row, read once")
    c.box(20, 62, 680, 208, "none", line=FAINT, dash=True)
    c.text(32, 80, "one cluster", size=11, anchor="start", fill=FAINT)
    middles = [110 + i * 166 for i in range(4)]
    for i, x in enumerate(middles):
        c.arrow(x, 46, x, 92)
        c.box(x - 68, 92, 136, 166, STITCHED, line=STITCHED)
        c.text(x, 110, f"block {i}", size=11, fill=FAINT)
        c.label(x - 58, 118, 116, 44, "shared memory:\na quarter of the row", CHIP, size=11)
        c.label(x - 58, 212, 116, 36, "shared memory:\nall four sums", CHIP, size=11)
        c.arrow(x, 258, x, 284)
    for x in middles:
        for other in middles:
            c.arrow(x, 162, other, 212, line=CHIP if x != other else FAINT, width=1)
    c.memory(284, "device memory: the result")
    return c


def grid() -> Canvas:
    """Phases of a kernel, with all blocks waiting for each other between them."""
    c = Canvas(WIDTH, 330, "Grid composition: all blocks meet in global memory")
    c.memory(20, "device memory: x")
    for i in range(6):
        x = 34 + i * 111
        c.arrow(x + 48, 46, x + 48, 70)
        c.label(x, 70, 96, 40, f"block {i}:\npartial sum", STITCHED, size=12)
        c.arrow(x + 48, 110, x + 48, 132, line=CHIP)
        c.arrow(x + 48, 158, x + 48, 226, line=CHIP)
        c.label(x, 226, 96, 40, f"block {i}:\nx * factor", STITCHED, size=12)
        c.arrow(x + 48, 266, x + 48, 290)
    c.label(34, 132, 651, 26, "scratch buffer: six partial sums, small enough for the L2 cache", CHIP, size=12)
    c.line(20, 194, 700, 194, line=INK, dash=True)
    c.text(360, 188, "all blocks of the launch wait for each other", size=12)
    c.memory(290, "device memory: the result")
    return c


def loop() -> Canvas:
    """A loop as launches of each iteration, and as one kernel with the carry in registers."""
    c = Canvas(WIDTH, 380, "A whole loop in one kernel")
    c.text(
        20, 30, "jax.jit: some launches for each iteration; the carry goes through memory", anchor="start", bold=True
    )
    for i in range(5):
        x = 20 + i * 138
        c.label(x, 46, 60, 28, "body", XLA, size=12)
        c.label(x + 66, 46, 46, 28, "i + 1", XLA, size=12)
        if i < 4:
            c.arrow(x + 112, 60, x + 136, 60)
        c.arrow(x + 30, 74, x + 30, 92, line=FAINT)
        c.arrow(x + 42, 92, x + 42, 74, line=FAINT)
    c.memory(94, "device memory: the carry, written and read again by each iteration")
    c.text(20, 160, "stitched: one launch; each row of the carry is a thread's", anchor="start", bold=True)
    c.memory(176, "device memory: first carry, and inputs of the scan, of which each iteration reads its slice")
    for i in range(3):
        x = 60 + i * 220
        c.arrow(x + 30, 202, x + 30, 226)
        c.arrow(x + 130, 202, x + 130, 226, line=FAINT, dash=True)
        c.box(x, 226, 160, 88, STITCHED, line=STITCHED)
        c.text(x + 80, 243, f"thread {i}: for all iterations", size=11, fill=FAINT)
        c.label(x + 10, 254, 66, 46, "body", "none", size=12)
        c.label(x + 92, 254, 60, 46, "carry in\nregisters", CHIP, size=11)
        c.curve(f"M{x + 76} 266 L{x + 91} 266", line=CHIP)
        c.curve(f"M{x + 92} 290 L{x + 77} 290", line=CHIP)
        c.arrow(x + 30, 314, x + 30, 340)
        c.arrow(x + 130, 314, x + 130, 340, line=FAINT, dash=True)
    c.memory(340, "device memory: last carry, and outputs of the scan, of which each iteration writes its slice")
    return c


def overview() -> Canvas:
    """All levels beside each other: who takes part, and where a value lives."""
    c = Canvas(WIDTH, 290, "The composition levels")
    rows = (
        ("thread", "one thread", "its registers", 0.0),
        ("warp", "32 threads, by shuffles", "their registers", 1.0),
        ("block", "up to 1,024 threads, behind a barrier", "shared memory", 2.0),
        ("cluster", "2, 4 or 8 blocks (H100 or later)", "each other's shared memory", 3.0),
        ("grid", "all blocks of the launch", "a scratch buffer, in L2 where small", 4.0),
        ("packing", "parts that need nothing of each other", "nothing is handed over", 0.0),
    )
    for x, words in ((30, "level"), (150, "who meets"), (440, "where a value between the parts lives")):
        c.text(x, 30, words, size=12, anchor="start", fill=FAINT)
    for i, (name, who, where, reach) in enumerate(rows):
        y = 44 + i * 40
        colour = OTHER if name == "packing" else STITCHED
        c.box(20, y, 680, 32, colour if name == "packing" else MEMORY, line=MEMORY)
        c.solid(20, y, 6, 32, colour)
        c.text(36, y + 21, name, anchor="start", bold=True)
        c.text(150, y + 21, who, anchor="start")
        c.text(440, y + 21, where, anchor="start")
        for step in range(int(reach) + 1):
            c.solid(115 + step * 6, y + 22 - step * 4, 4, 4 + step * 4, colour)
    return c


DRAWINGS = {
    "level_overview": overview,
    "level_packing": packing,
    "level_thread": thread,
    "level_warp": warp,
    "level_block": block,
    "level_cluster": cluster,
    "level_grid": grid,
    "level_loop": loop,
}
