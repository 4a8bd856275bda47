"""What a profile shows of a stitched kernel: the user's scopes around it, its name, and the lines that it computes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from jax_stitch.graph import Node

_SHOWN = 6
"""Runs of lines in a label; a kernel of a large function has dozens."""


_CARRYING = frozenset({"broadcast", "complex", "imag", "real"})
"""Operations that compute nothing: a kernel has those that it reads and writes what is around it with."""


def label(kernel: str, nodes: Sequence[Node]) -> str:
    """Return a name for ``jax.named_scope``: ``encoder/attention/stitch_3_reduce_max(model.py 12-14 17)``.

    The scopes are those that all operations of the kernel are in. No colons: profilers take what follows for a type.
    """
    own = [node for node in nodes if node.op not in _CARRYING] or nodes
    columns = zip(*(node.scope.split("/") for node in own if node.source and node.op != "constant"), strict=False)
    scopes = [column[0] for column in itertools.takewhile(lambda column: len(set(column)) == 1, columns)]
    lines = _lines(node.source for node in own)
    return "/".join([*filter(None, scopes), f"{kernel}({lines})" if lines else kernel])


def _lines(sources: Iterable[str]) -> str:
    by_file: dict[str, set[int]] = {}
    for source in filter(None, sources):
        file, _, line = source.rpartition(":")
        by_file.setdefault(PurePath(file).name, set()).add(int(line))
    runs = [(file, run) for file, lines in by_file.items() for run in line_runs(sorted(lines))]
    words: list[str] = []
    for n, (file, run) in enumerate(runs[:_SHOWN]):
        words += [run] if n and runs[n - 1][0] == file else [file, run]
    return " ".join(words + ["..."] * (len(runs) > _SHOWN))


def line_runs(lines: Sequence[int]) -> list[str]:
    """Return numbers of lines as runs: ``[1, 2, 3, 7]`` -> ``["1-3", "7"]``."""
    starts = [n for n in lines if n - 1 not in lines]
    ends = [n for n in lines if n + 1 not in lines]
    return [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
