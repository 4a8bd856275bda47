"""The verifier refuses a kernel that is written over an input where that is wrong: each planted fault, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import jax
import pytest

from jax_stitch.emit import Reuse, kernel_of
from jax_stitch.emit.in_place import in_place
from jax_stitch.kernel import expressions as ex
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.interpret import interpret
from jax_stitch.kernel.model import Kernel
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.text import text
from jax_stitch.kernel.threads import Reach, Who
from jax_stitch.kernel.verify import aliases, verify
from jax_stitch.util.values import replace
from tests.fusion import forced
from tests.in_place import oracle
from tests.in_place.programs import PROGRAMS
from tests.kernel.faults import edited, is_a, loads

H200 = forced.device("h200")


def plain(name: str) -> tuple[Kernel, list[Reuse]]:
    """A program's first kernel, and what could be written over what by type alone."""
    made = PROGRAMS[name]
    kernel = forced.stitched(forced.hlo_of(made.fun, *made.args()), H200).kernels[0]
    return kernel_of(kernel.scheduled), list(oracle.pairs(kernel))


def written(name: str) -> Kernel:
    """The kernel written in place where it may be."""
    made, aliases = in_place(*plain(name))
    assert aliases and not verify(made), name
    return made


def over(name: str, given: str = "in0", taken: str = "out0") -> Kernel:
    """The kernel written over an input, whatever it does."""
    made, _ = plain(name)
    outputs = tuple(replace(b, over=given) if b.name == taken else b for b in made.outputs)
    parts = tuple(replace(p, parameters=tuple(replace(q, in_place=True) for q in p.parameters)) for p in made.parts)
    return replace(made, outputs=outputs, parts=parts)


def is_store(node: Any) -> bool:
    assign = node
    return isinstance(assign, st.Assign) and isinstance(assign.target, ex.Element)


def reads_after(kernel: Kernel) -> Kernel:
    """The first thing that is read, once more behind what is written."""
    found: list[st.Define] = []

    def first(node: Any) -> bool:
        if loads(node):
            found.append(node)
        return bool(found) and is_store(node)

    def with_read(node: Any) -> Any:
        return node, replace(found[0], name="read_again")

    return edited(kernel, first, with_read)


def other_threads(kernel: Kernel) -> Kernel:
    """The first pass over rows gives each lane other places."""
    return edited(kernel, is_a(st.Pass), lambda s: replace(s, vector=1 if s.vector > 1 else 2))


def second(kernel: Kernel) -> Kernel:
    """Two outputs over the first input."""
    return replace(kernel, outputs=tuple(replace(b, over="in0") for b in kernel.outputs))


def alone(kernel: Kernel) -> Kernel:
    return edited(kernel, is_a(model.Parameter, in_place=True), lambda p: replace(p, in_place=False))


def by_one_thread(kernel: Kernel) -> Kernel:
    return edited(
        kernel, lambda n: isinstance(n, st.Assign) and n.who is not None, lambda s: replace(s, who=Who.ONE_THREAD)
    )


def twice(kernel: Kernel) -> Kernel:
    """Another part, of the same phase, does the same with the input, for an output of its own."""
    more = replace(kernel.outputs[0], name="more", over="")
    (phase,) = kernel.phases
    blocks = phase.calls[-1].last
    arguments = tuple("more" if a == "out0" else a for a in phase.calls[0].arguments)
    call = replace(phase.calls[0], first=blocks, last=blocks + phase.calls[0].last, arguments=arguments)
    return replace(kernel, outputs=(*kernel.outputs, more), phases=(model.Phase((*phase.calls, call)),))


def later(kernel: Kernel) -> Kernel:
    """The same, behind a barrier of all blocks."""
    found = twice(kernel)
    (phase,) = found.phases
    phases = tuple(model.Phase((call,)) for call in phase.calls)
    return replace(found, phases=phases, launch=replace(found.launch, resident=True))


@dataclass(frozen=True)
class Planted:
    make: Callable[[], Kernel]
    reason: str


def _changed(name: str, change: Callable[[Kernel], Kernel]) -> Callable[[], Kernel]:
    return lambda: change(written(name))


PLANTED = {
    "neighbours are read": Planted(lambda: over("rolled"), "read where another one is written"),
    "the row is read backwards": Planted(lambda: over("reversed"), "read where another one is written"),
    "the column of a row": Planted(lambda: over("transposed"), "read where another one is written"),
    "one row for all": Planted(lambda: over("broadcast row"), "read where another one is written"),
    "data-dependent places": Planted(lambda: over("picked"), "read where another one is written"),
    "read after it is written": Planted(_changed("elementwise", reads_after), "read after it is written"),
    "no barrier of a row's threads": Planted(
        _changed("bias", lambda k: edited(k, is_a(st.Barrier), lambda _: ())), "another thread"
    ),
    "a barrier too early": Planted(
        _changed("bias", lambda k: replace(k, parts=tuple(_barrier_first(p) for p in k.parts))), "another thread"
    ),
    "another thread of the row": Planted(_changed("vector softmax", other_threads), "another thread"),
    "another part reads it": Planted(_changed("elementwise", twice), "another part reads it"),
    "a later phase reads it": Planted(_changed("elementwise", later), "another part reads it"),
    "two outputs over one input": Planted(lambda: second(over("two outputs")), "another output is too"),
    "an input of another type": Planted(lambda: over("picked", given="in1"), "their types differ"),
    "no such input": Planted(lambda: over("elementwise", given="in7"), "no such input"),
    "a pointer said to be the only one": Planted(_changed("elementwise", alone), "only one in its memory"),
}


def _barrier_first(part: model.Part) -> model.Part:
    body = tuple(s for s in part.body if not isinstance(s, st.Barrier))
    return replace(part, body=(st.Barrier(Reach.BLOCK), *body))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_refused(name: str) -> None:
    found = [str(f) for f in verify(PLANTED[name].make())]
    assert any(PLANTED[name].reason in f for f in found), found


@pytest.mark.parametrize("name", ["elementwise", "adam", "vector softmax", "bias", "long softmax", "standardise"])
def test_the_text_is_read_back_and_the_interpreter_shares_the_memory(name: str) -> None:
    """The kernel language says what is written over what."""
    made, wanted = plain(name)
    changed, aliases = in_place(made, wanted)
    assert parse(text(changed)) == changed
    arrays = PROGRAMS[name].args()[: len(made.inputs)]
    for a, b in zip(interpret(made, arrays), interpret(changed, arrays), strict=True):
        assert a.tobytes() == b.tobytes()
    assert bool(aliases) == any(b.over for b in changed.outputs)


def test_compilers_are_told_only_of_what_is_written_in_place() -> None:
    """The licence to take a pointer for the only one, and to read an input by the cache of constants, goes for the
    pair alone: others keep it, since their reads would wait for writes.
    """
    from jax_stitch.emit.cpp import kernel as cpp_kernel

    written_text = cpp_kernel.text(written("average"))
    (entry,) = [line for line in written_text.splitlines() if "__global__" in line]
    assert "const float* ST_IN_PLACE in0" in entry or "const float* ST_IN_PLACE in1" in entry
    assert entry.count("ST_IN_PLACE") == 2 and entry.count("ST_RESTRICT") == 1
    assert "ST_IN_PLACE" not in cpp_kernel.text(plain("average")[0])


def test_a_part_is_gone_through_once_however_many_buffers_it_has() -> None:
    """Every pair of 24 inputs and outputs is asked for: walks for each made a plan take minutes."""
    values = [jax.ShapeDtypeStruct((8, 128), "float32")] * 24
    text_of = forced.hlo_of(lambda *xs: tuple(x * 2 + y for x, y in zip(xs, xs[1:] + xs[:1], strict=True)), *values)
    (kernel,) = forced.stitched(text_of, H200).kernels
    asked = list(oracle.pairs(kernel))
    assert len(asked) > 24
    made = kernel_of(kernel.scheduled)
    with mock.patch.object(aliases, "WriteCheck", wraps=aliases.WriteCheck) as walks:
        in_place(made, asked)
    assert walks.call_count <= 2 * len(made.parts)  # as it is, and with the threads of a row met before they write
