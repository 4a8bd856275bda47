"""Rows that are copied whole to a block's shared memory (``cp.async.bulk``): where that is planned, what it computes in
the interpreter, on the CPU and in the checking mode, what the compilers make of it, and what the checks refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_stitch.backend.compile import NvrtcMissing, PtxKernel, compile_ptx, nvrtc
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.checking import Kind, check, check_function
from jax_stitch.devices import Device
from jax_stitch.emit import emit, kernel_of
from jax_stitch.jit.tune import spills
from jax_stitch.kernel import model
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Ref
from jax_stitch.kernel.parse import parse
from jax_stitch.kernel.text import text
from jax_stitch.kernel.threads import Space
from jax_stitch.kernel.verify import verify
from jax_stitch.latency import latency
from jax_stitch.pipeline import Stitched
from jax_stitch.schedule import ScheduledKernel, registers, schedule
from jax_stitch.schedule.fetched import fetched
from jax_stitch.util.values import replace
from tests.clusters.laid_out import FUNCTIONS, H200, arguments, exact, made
from tests.clusters.test_choice import A100, planned
from tests.clusters.test_kernels import agree
from tests.fusion import forced
from tests.kernel.agreement import interpreted

HALF = jnp.bfloat16
BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


def again(kernel: ScheduledKernel, device: Device = H200, fetch: bool = True) -> ScheduledKernel:
    patterns = [p.pattern for p in kernel.parts]
    return schedule(kernel.graph, patterns, device, kernel.name, fetch=fetch)


def fetching(name: str, args: Sequence[np.ndarray], device: Device = H200) -> Stitched:
    """A function's kernels with the rows fetched that can be."""
    found = made(name, args, 1, device).stitched
    kernels = [again(k.scheduled, device) for k in found.kernels]
    laid_out = (replace(k, scheduled=s, source=emit(s)) for k, s in zip(found.kernels, kernels, strict=True))
    return replace(found, kernels=tuple(laid_out))


def fetches(stitched: Stitched) -> int:
    """How many inputs are fetched."""
    return sum(len(fetched(p)) for k in stitched.kernels for p in k.scheduled.parts)


@pytest.mark.parametrize("dtype", [np.float32, HALF, np.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize(
    ("name", "rows", "inputs"),
    [
        ("softmax", 5, 1),
        ("layer_norm_gradient", 5, 2),
        ("scale_gradient", 5, 2),
        ("cross_entropy", 40, 1),
        ("cross_entropy_and_gradient", 40, 1),
        ("standard_scores", 5, 1),
    ],
)
def test_what_it_computes(name: str, rows: int, inputs: int, dtype: Any) -> None:
    """A row that is not there yet, or is the next one's; elements of it that data names; several rows in turn."""
    args = arguments(name, rows, 1024, dtype)
    found = fetching(name, args)
    assert fetches(found) == inputs
    want = exact(name, args)
    checked = check_function(found, args)
    assert not checked.errors, str(checked)
    for got in (checked.results, forced.run(found, args), interpreted(found, args)):
        agree(got, want, dtype)


def test_several_rows_of_a_block_and_fewer_than_it_has_room_for() -> None:
    args = arguments("softmax", 7, 96, np.float32)
    found = fetching("softmax", args)
    (part,) = found.kernels[0].scheduled.parts
    assert part.split.rows_per_block > 1 and 7 % part.split.rows_per_block and fetched(part)
    checked = check_function(found, args)
    assert not checked.errors, str(checked)
    agree(checked.results, exact("softmax", args), np.float32)
    agree(forced.run(found, args), exact("softmax", args), np.float32)


def of(f: Callable[..., Any], *args: np.ndarray) -> int:
    found = forced.stitched(forced.hlo_of(f, *args), H200)
    return sum(len(fetched(p)) for k in found.kernels for p in again(k.scheduled).parts)


def test_only_rows_that_bulk_copies_can_take() -> None:
    """Those that begin and end at multiples of 16 bytes, in one piece, that fit, and that several passes go
    through from end to end.
    """
    softmax = FUNCTIONS["softmax"]
    assert [of(softmax, np.zeros((6, n), np.float32)) for n in (1024, 1022, 1020, 60_000)] == [1, 0, 1, 0]
    assert [of(softmax, np.zeros((6, n), HALF)) for n in (1024, 1020, 1016, 60_000)] == [1, 0, 1, 1]
    x = np.zeros((6, 1028), np.float32)
    for piece in (slice(0, 1024), slice(1, 1025), slice(None, None, 2)):
        assert of(lambda x, piece=piece: softmax(x[:, piece]), x) == 0
    assert of(lambda x: softmax(x.T), np.zeros((1028, 512), np.float32)) == 0
    assert of(lambda x: x - x.max(), np.zeros(4096, np.float32)) == 0  # one row, of which no block is sure to be alone
    assert of(lambda x: x.max(1), x) == 0  # read once
    assert of(lambda x, s: x * s * x.max(1, keepdims=True), x, np.zeros(1028, np.float32)) == 1  # not what all share


def test_other_devices_have_no_bulk_copies() -> None:
    assert H200.fetches_rows and not A100.fetches_rows and not forced.device("cpu").fetches_rows
    for device in (A100, forced.device("cpu")):
        found = fetching("softmax", arguments("softmax", 5, 1024, np.float32), device)
        assert fetches(found) == 0 and "FETCH" not in found.kernels[0].source.text


@pytest.mark.parametrize(
    ("name", "rows", "places", "dtype"),
    [
        ("cross_entropy_and_gradient", 4096, 24_576, jnp.float32),
        ("layer_norm_gradient", 4096, 32_768, jnp.float32),
        ("softmax", 4096, 57_344, jnp.float32),
    ],
)
def test_it_is_planned_where_it_is_predicted_to_take_less(name: str, rows: int, places: int, dtype: Any) -> None:
    """Rows too long for registers: less than with the row read again, and than in clusters."""
    kernels = [k.scheduled for k in planned(name, rows, places, H200, dtype).kernels]
    found = [k for k in kernels if any(map(fetched, k.parts))]
    assert found
    for kernel in found:
        patterns = [p.pattern for p in kernel.parts]
        others = [schedule(kernel.graph, patterns, H200, "other", cluster=n) for n in (1, 2, 4, 8)]
        assert kernel.cluster == 1 and not any(fetched(p) for k in others for p in k.parts)
        assert latency(kernel, H200).seconds < min(latency(k, H200).seconds for k in others)
    assert not any(fetched(p) for k in planned(name, rows, places, A100, dtype).kernels for p in k.scheduled.parts)


def test_where_it_takes_less_with_fewer_sectors_no_margin_is_asked_for() -> None:
    """As for clusters, which trade them for barriers of several blocks."""
    (kernel,) = [k.scheduled for k in planned("cross_entropy", 4096, 24_576, H200).kernels]
    plain = latency(again(kernel, fetch=False), H200).seconds
    assert any(map(fetched, kernel.parts)) and 0.95 * plain < latency(kernel, H200).seconds < plain


def test_rows_that_registers_hold_stay_there() -> None:
    for rows, places in ((8192, 1024), (4096, 8192)):
        for kernel in planned("softmax", rows, places, H200).kernels:
            assert not any(map(fetched, kernel.scheduled.parts))


def test_what_was_copied_is_read_16_bytes_at_a_time() -> None:
    """By neighbouring lanes from neighbouring banks: narrow elements too, which need no rounding."""
    for name, dtype, vector in (("softmax", np.float32, 4), ("layer_norm_gradient", HALF, 8)):
        args = arguments(name, 3, 8192, dtype)
        (kernel,) = fetching(name, args).kernels
        (part,) = kernel.scheduled.parts
        assert part.vectors[8192] == vector and "_of_row[r_ * 8192 + j]" in kernel.source.text
        reads = [line for line in kernel.source.text.splitlines() if "ST_LOAD_VECTOR" in line]
        assert len(reads) >= 2 and all("_of_row, r_ * 8192 + j," in line for line in reads)
        findings = check(kernel.source, args, [0]).findings
        assert not findings.faults and not findings.extra_wavefronts, str(findings)
        reading = [line for line in kernel.source.text.splitlines() if "ST_OF_VECTOR" in line and "const" in line]
        assert reading and not any("round" in line for line in reading)


def test_other_places_of_a_row_are_read_one_by_one() -> None:
    """A row's neighbours in vectors would be in the banks of another lane's."""
    x = np.random.default_rng(0).standard_normal((5, 1024)).astype(np.float32)
    found = forced.stitched(forced.hlo_of(turned, x), H200)
    kernels = [again(k.scheduled) for k in found.kernels]
    assert any(fetched(p) and not p.vectors for k in kernels for p in k.parts)
    found = replace(
        found,
        kernels=tuple(replace(k, scheduled=s, source=emit(s)) for k, s in zip(found.kernels, kernels, strict=True)),
    )
    checked = check_function(found, [x])
    assert not checked.faulty, str(checked)
    for results in (checked.results, forced.run(found, [x]), interpreted(found, [x])):
        np.testing.assert_allclose(np.asarray(results[0]), turned(x), rtol=1e-6, atol=1e-6)


def turned(x: Any) -> Any:
    return (x - x.max(1, keepdims=True)) * x[:, ::-1]


def test_sectors_a_row_is_read_once() -> None:
    """Of one block at full length: a third of what it asks memory for otherwise."""
    args = [jax.ShapeDtypeStruct((4096, 32_768), jnp.float32)]
    (kernel,) = forced.stitched(forced.hlo_of(FUNCTIONS["softmax"], *args), H200).kernels
    read = []
    for fetch in (True, False):
        counted = check(emit(again(kernel.scheduled, fetch=fetch)), [None], [0]).findings
        assert not counted.faults, str(counted)
        read.append(next(t.read_by_warps for t in counted.traffic if t.name == "in0"))
    assert read == [32_768 * 4 // 32, 3 * 32_768 * 4 // 32]


# -- the compilers


def has_nvrtc() -> bool:
    try:
        nvrtc.nvrtc()
    except NvrtcMissing:
        return False
    return True


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("sm", ["sm_80", "sm_90", "sm_100"])
def test_the_instructions_are_in_the_ptx(sm: str) -> None:
    """From sm_90 on; before that the same text has the row's lanes copy it."""
    (kernel,) = fetching("layer_norm_gradient", arguments("layer_norm_gradient", 3, 8192, np.float32)).kernels
    compiled = compile_ptx(kernel.source, sm)
    bulk = sm != "sm_80"
    assert compiled.ptx.count(BULK) == 2 * bulk and not compiled.spill_bytes
    for instruction in ("mbarrier.init", "mbarrier.arrive", "mbarrier.try_wait.parity.acquire", "fence.proxy.async"):
        assert (instruction in compiled.ptx) == bulk
    assert ("ld.global" in compiled.ptx) != bulk


# -- what the checks refuse


def kernel_with(sequence: bool = False) -> model.Kernel:
    name = "cross_entropy" if sequence else "softmax"
    found = fetching(name, arguments(name, 40, 1024, np.float32))
    return kernel_of(found.kernels[0].scheduled)


def changed(kernel: model.Kernel, change: Callable[[st.Pass], st.Statement]) -> model.Kernel:
    """The kernel with its fetch changed."""
    first, *others = kernel.parts
    body = tuple(change(s) if isinstance(s, st.Pass) and s.fetches else s for s in first.body)
    assert body != first.body
    return replace(kernel, parts=(replace(first, body=body), *others))


def with_row_value(kernel: model.Kernel) -> model.Kernel:
    (part,) = kernel.parts
    return replace(kernel, parts=(replace(part, body=(st.Allocate.of_row("of_row", "f32"), *part.body)),))


def moved(s: st.Pass, **fields: Any) -> st.Pass:
    """With another element copied, or to another cell."""
    (stretch,) = s.stretches
    (assign,) = stretch.body
    assert isinstance(assign, st.Assign) and isinstance(assign.value, Element)
    assign = replace(assign, **{k: change(getattr(assign, k)) for k, change in fields.items()})
    return replace(s, stretches=(replace(stretch, body=(assign,)),))


def doubled(s: st.Pass, other: st.Pass) -> st.Pass:
    """What both copy."""
    body = *s.stretches[0].body, *other.stretches[0].body
    return replace(s, stretches=(replace(s.stretches[0], body=body),))


FAULTS: dict[str, tuple[Callable[[st.Pass], st.Statement], str]] = {
    "a copy that some threads do not come to": (
        lambda s: st.Choice((st.Case((), (s,)),)),
        "not all threads come to this pass",
    ),
    "a loop whose end threads may find apart": (lambda s: st.For.times("again", None, (s,)), "not all threads come"),
    "a row that begins between two multiples of 16 bytes": (
        lambda s: moved(s, value=lambda e: replace(e, at=e.at * 1 + 1)),
        "at no multiple of 16 bytes",
    ),
    "a row that is not in one piece": (lambda s: moved(s, value=lambda e: replace(e, at=e.at * 2)), "in one piece"),
    "a copy to a value of the row": (
        lambda s: doubled(s, moved(s, target=lambda r: Ref("of_row", r.dtype))),
        "goes to no array in shared memory",
    ),
    "more than copies": (lambda s: replace(s, row=(st.Barrier(),)), "something else as well"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_verifier_refuses(name: str) -> None:
    kernel = with_row_value(kernel_with())
    assert not verify(kernel)
    change, message = FAULTS[name]
    found = verify(changed(kernel, change))
    assert any(message in str(f) for f in found), found


def test_the_verifier_refuses_arrays_that_are_not_as_in_buffers() -> None:
    kernel = kernel_with()
    for fields in ({"in_memory": False}, {"offset": 264}):
        body = tuple(
            replace(s, **fields) if isinstance(s, st.Allocate) and s.space is Space.SHARED else s
            for s in kernel.parts[0].body
        )
        wrong = replace(kernel, parts=(replace(kernel.parts[0], body=body),))
        assert any("not as the rows" in str(f) or "multiple of 16" in str(f) for f in verify(wrong))


def test_the_verifier_refuses_what_an_earlier_phase_has_written() -> None:
    kernel = kernel_with()
    (part,) = kernel.parts
    parameters = tuple(p if p.written else replace(p, crossing=True) for p in part.parameters)
    found = verify(replace(kernel, parts=(replace(part, parameters=parameters),)))
    assert any("no row of an input" in str(f) for f in found)


def test_its_text_is_read_back() -> None:
    kernel = kernel_with()
    assert "fetches=true" in text(kernel) and parse(text(kernel)) == kernel


MUTANTS = {
    "the wait for all rows": ("wait(bool) { __syncthreads(); }", "wait(bool) {}"),
    "the barrier before the next rows": ("explicit Fetch(int) { __syncthreads(); }", "explicit Fetch(int) {}"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_copy_that_forgets_to_wait_is_found_in_the_checking_mode(name: str) -> None:
    """The rows come in turn, so that the next may be copied over one that is still read."""
    old, new = MUTANTS[name]
    args = arguments("cross_entropy", 320, 1024, np.float32)
    source = fetching("cross_entropy", args, forced.device("h200", multiprocessors=16)).kernels[0].source
    assert "ST_EACH_TURN(1)" not in source.text.split("ST_FETCH_ROWS")[0]
    header = (RUNTIME / "vector.h").read_text()
    assert old in header
    start = header.index("class Fetch {", header.index("#else"))
    own = header[start : header.index("};", start) + 2].replace(old, new).replace("Fetch", "Changed")
    plain = "const bool has_row_ = row0_ + r_ < rows_; st::"
    macro = f"#undef ST_FETCH_ROWS\n#define ST_FETCH_ROWS {plain}Changed fetch_(1);\n"
    changed_text = source.text.replace(
        '#include "stitch.h"', f'#include "stitch.h"\n#ifdef __CUDACC__\nnamespace st {{\n{own}\n}}\n{macro}#endif', 1
    )
    findings = check(replace(source, text=changed_text), args).findings
    assert Kind.RACE in {f.kind for f in findings.faults}, str(findings)


def test_loads_that_are_not_under_way_take_no_registers() -> None:
    for name in ("softmax", "layer_norm_gradient"):
        (kernel,) = made(name, arguments(name, 3, 24_576, np.float32), 1).stitched.kernels
        plain, copied = again(kernel.scheduled, fetch=False), again(kernel.scheduled)
        assert any(map(fetched, copied.parts)) and registers(copied, H200) < registers(plain, H200)


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
def test_a_kernel_that_is_laid_out_again_for_its_registers_fetches_its_rows_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = fetching("softmax", arguments("softmax", 3, 8192, np.float32))

    def spilling(stitched: Stitched, sm: str) -> tuple[Stitched, list[PtxKernel]]:
        return stitched, [replace(compile_ptx(s, sm), spill_bytes=64) for s in stitched.sources]

    monkeypatch.setattr(spills, "compiled_in_time", spilling)
    (kernel,) = spills.fit(found, "sm_90").kernels
    assert kernel.scheduled.together and any(map(fetched, kernel.scheduled.parts))
    assert "ST_FETCH_ROW(" in kernel.source.text
