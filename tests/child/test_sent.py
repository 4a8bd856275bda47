"""What the planner's answer may be made of."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import hlo_parser
from jax_stitch import graph
from jax_stitch.frontend.replay import LaunchedGraph
from jax_stitch.jit.stitching.model import KernelProgram
from jax_stitch.jit.stitching.sent import from_bytes, to_bytes
from jax_stitch.util.child import Child

TEXT = """HloModule m

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: f32[4,8]) -> f32[4] {
  %x = f32[4,8]{1,0} parameter(0)
  %z = f32[] constant(-0)
  %k = f32[4,8]{1,0} constant({{1,2,3,4,5,6,7,8},{1,2,3,4,5,6,7,8},{nan,2,3,4,5,6,7,inf},{1,2,3,4,5,6,7,8}})
  %m = f32[4,8]{1,0} multiply(%x, %k), metadata={op_name="f" source_file="model.py" source_line=7}
  ROOT %r = f32[4]{0} reduce(%m, %z), dimensions={1}, to_apply=%add
}
"""


class Calls:
    """Pickled, a call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


def test_a_graph_comes_back_as_it_was() -> None:
    """Numbers to the bit, operations that call others, attributes that cannot be changed."""
    built = graph.build(hlo_parser.parse(TEXT))
    program = KernelProgram(LaunchedGraph(built), (), (), (), 2, 3)
    found = from_bytes(to_bytes(program))
    back = found.graph.graph
    assert str(back) == str(built) and (found.launches, found.replaced) == (2, 3)
    for one, other in zip(back.nodes, built.nodes, strict=True):
        assert one.attributes == other.attributes and one.graphs.keys() == other.graphs.keys()
        assert (one.source, one.scope, one.kernel) == (other.source, other.scope, other.kernel)
        if other.literal is not None:
            assert one.literal is not None and one.literal.tobytes() == other.literal.tobytes()
    assert any(isinstance(node.attributes, MappingProxyType) for node in back.nodes)


@pytest.mark.parametrize(
    "planted",
    [
        Calls(os.system, "touch ran"),
        Calls(eval, "open('ran', 'w')"),
        Calls(getattr, "text", "upper"),
        Calls(np.memmap, "ran", "u1", "w+", 0, (1,)),
        Calls(Child, "jax_stitch.jit.stitching.maker", {}),
        Calls(Path, "ran"),
    ],
    ids=["a command", "code", "an attribute", "a file of NumPy's", "a process of ours", "another library's class"],
)
def test_nothing_else_is_made(planted: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match="is no part of a program"):
        from_bytes(pickle.dumps(planted))
    assert not list(tmp_path.iterdir())


def test_a_kernel_that_is_not_on_disk_is_told_of() -> None:
    from jax_stitch.jit.stitching import sent

    with pytest.raises(sent.KernelGone, match="stitch_0"):
        from_bytes(pickle.dumps(Calls(sent._loaded, "stitch_0", "0" * 64)))
