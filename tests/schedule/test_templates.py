"""The notation of schedules: printed, read back, and had."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_stitch import stitch_jit
from jax_stitch.api import stitch
from jax_stitch.checking import Kind, check
from jax_stitch.emit import emit
from jax_stitch.schedule import schedule
from jax_stitch.schedule.model import Order, Split
from jax_stitch.schedule.template import (
    Template,
    kernel_name,
    parse_templates,
    part_name,
    pick,
    template_of,
    templates_of,
    wanted,
)
from jax_stitch.util.options.template_error import TemplateError
from tests.fusion import forced
from tests.some import some

SIZES = st.sampled_from([1 << k for k in range(11)])


@given(SIZES, SIZES, SIZES, SIZES, st.sampled_from(Order), st.booleans())
def test_every_split_has_a_name_that_reads_back(blocks, rows, lanes, turns, order, shared) -> None:
    """Two splits of one name would force the wrong one; lanes of 1 have no order."""
    split = Split(rows * blocks * turns, 1, rows, lanes, order, turns, blocks)
    made = template_of("reduce_sum", split, shared)
    (back,) = parse_templates(f" {made} ;")
    assert back == made
    others = [Split(split.rows, 1, r, n, o, turns, blocks) for r in (rows, 2 * rows) for n in (lanes, 2) for o in Order]
    for other in others:
        same = (other.rows_per_block, other.lanes) == (rows, lanes) and (other.order is order or lanes == 1)
        assert back.admits(template_of("x", other)) == same


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("reduce_sum", "is no schedule"),
        ("reduce_sum[GRID]", "tiles 1 dimensions"),
        ("reduce_sum[GRID,BLOCK_3]", "'BLOCK_3' in .* none of GRID, CLUSTER, CTA, WARP, THREAD"),
        ("reduce_sum[GRID,CTA_]", "'CTA_'"),
        ("a[GRID,CTA]S; b[GRID,CTA_x]", "'CTA_x'"),
    ],
)
def test_what_cannot_be_read_is_shown(text: str, told: str) -> None:
    with pytest.raises(TemplateError, match=told):
        parse_templates(text)


def test_the_last_of_several_counts_and_open_sizes_are_any() -> None:
    first, last = parse_templates("a[GRID,WARP_8]; a[GRID-CTA,CTA-WARP]")
    assert wanted((first, last), "a") is last
    splits = [Split(64, 64, 2, lanes, Order.LANES, 1, 32) for lanes in (32, 64, 128)]
    assert pick(last, splits).lanes == 64
    with pytest.raises(
        TemplateError, match=r"(?s)a\[GRID,WARP_8\] is no schedule of a here.*a\[GRID_32-CTA_2,WARP_32\]"
    ):
        pick(first, splits)


def function(x: jax.Array) -> tuple[jax.Array, ...]:
    y = jax.nn.softmax(x, 1)
    return y, jnp.cumsum(y, 1), y.max(1)


def options(target: str, x: np.ndarray) -> list[Template]:
    """All schedules that the one part of ``function`` can have."""
    plan = stitch_jit(function).plan(x, device=target)
    (name,) = {t.name for k in plan.kernels for t in parse_templates(k.schedule)}
    with pytest.raises(TemplateError) as error:
        stitch_jit(function).plan(x, device=target, templates=f"{name}[GRID,WARP_3]")
    return [t for line in str(error.value).splitlines()[1:] for t in parse_templates(line)]


@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_every_schedule_that_is_offered_can_be_had_and_is_right(target: str) -> None:
    """A layout that the generator never chooses by itself, and gets wrong."""
    x = np.random.default_rng(0).standard_normal((1000, 100)).astype(np.float32)
    found = options(target, x)
    assert len({str(t) for t in found}) == len(found) > 10
    want = jax.jit(function)(x)
    for template in found[:: 1 + len(found) // some(2, of=4)]:
        plan = stitch_jit(function, templates=str(template)).plan(x, device=target)
        assert template.admits(parse_templates(plan.kernels[0].schedule)[0])
        got = jax.jit(stitch(function, schedule_device=target, templates=str(template)))(x)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("asked", ["[GRID-CTA_64,CTA_16]", "[GRID-CTA_8,CTA_2-WARP_32]", "[GRID-CTA_32,WARP_8]"])
def test_asked_for_schedules_keep_to_CUDAs_rules(asked: str) -> None:
    x = np.random.default_rng(0).standard_normal((70, 100)).astype(np.float32)
    target = forced.device("h200")
    plan = forced.plan_of(forced.graph_of(function, x), target)
    (kernel,) = plan.kernels
    name = part_name(plan.graph, kernel[0])
    scheduled = schedule(plan.graph, kernel, target, "kernel", templates=parse_templates(name + asked))
    assert parse_templates(name + asked)[0].admits(templates_of(scheduled)[0])
    checked = check(emit(scheduled), [x])
    assert not any(f.kind is not Kind.BANK_CONFLICT for f in checked.findings.faults), str(checked)


def test_a_wrong_template_is_an_error_where_the_function_is_called() -> None:
    with pytest.raises(TemplateError, match=r"no part of a kernel is called nothing\. There are: "):
        stitch_jit(function, templates="nothing[GRID,CTA]")(jnp.ones((64, 128)))


def test_a_name_does_not_depend_on_the_order_of_operations() -> None:
    """``cumsum(x) / x.sum()`` was ``reduce_window_sum`` in its template and ``reduce_sum`` in its kernel's name, and
    the other way round where the sum was written first.
    """
    x = jax.ShapeDtypeStruct((256, 1024), jnp.float32)
    functions = (
        lambda x: (jnp.cumsum(x, 1), x.sum(1), x.max(1)),
        lambda x: (x.max(1), x.sum(1), jnp.cumsum(x, 1)),
        lambda x: (x.sum(1), jnp.cumsum(x, 1), x.max(1)),
    )
    for written in functions:
        (kernel,) = stitch_jit(written).plan(x, device="h200").kernels
        assert kernel.name == "stitch_0_reduce_window_sum" and kernel.schedule.startswith("reduce_window_sum[")
    pairs = (lambda x: (x.sum(1), x.max(1)), lambda x: (x.max(1), x.sum(1)))
    names = {forced_name(written, x) for written in pairs}
    assert names == {"reduce_max"}, "as large, and of one opcode: by the alphabet"
    elementwise = (lambda x: (x * 2, x[:, :1] - 1), lambda x: (x[:, :1] - 1, x * 2))
    assert {forced_name(written, x) for written in elementwise} == {"mul_sub"}, "the largest part first"


def forced_name(function, x) -> str:
    plan = forced.plan_of(forced.graph_of(function, x), forced.device("h200"))
    (kernel,) = plan.kernels
    for pattern in kernel:
        assert kernel_name(plan.graph, [pattern]) == part_name(plan.graph, pattern)
    return kernel_name(plan.graph, kernel)


def test_plans_print_schedules() -> None:
    plan = stitch_jit(function).plan(jax.ShapeDtypeStruct((8192, 1024), jnp.float32), device="h200")
    (template,) = parse_templates(plan.kernels[0].schedule)
    assert str(template) in str(plan)
