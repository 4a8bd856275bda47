"""Gathers, scatters and dynamic slices, with any dimension numbers and with indices that lie outside."""

from __future__ import annotations

import math

from tests.fuzz import values
from tests.fuzz.draft import Draft, dtype_name, kind_of
from tests.fuzz.recipes.arrays import Recipe, some_axis

MODES = ("'clip'", "'fill'", "'promise_in_bounds'", "None")


def start(d: Draft, n: int) -> str:
    """One index: a number, perhaps outside, or a value of the program."""
    rng = d.rng
    if rng.random() < 0.3:
        found = d.find(lambda a: kind_of(a) == "int" and not a.shape)
        if found is not None:
            return found
    if rng.random() < 0.3:
        found = d.find(lambda a: kind_of(a) == "int" and len(a.shape) == 1 and a.shape[0] > 0)
        if found is not None:
            return f"{found}[{rng.randrange(d.shape(found)[0])}]"
    return str(rng.choice((0, 0, 1, n - 1, n, n + 5, -1, -n - 2)))


def starts(d: Draft, v: str) -> str:
    return f"[{', '.join(f'jnp.int32({start(d, n)})' for n in d.shape(v))}]"


def sizes(d: Draft, v: str) -> list[int]:
    return [d.rng.choice((n, n, max(n - 1, 0), min(n, 1), d.rng.randint(0, n))) for n in d.shape(v)]


def dynamic_slice(d: Draft, v: str) -> str:
    return f"lax.dynamic_slice({v}, {starts(d, v)}, {sizes(d, v)})"


def dynamic_update_slice(d: Draft, v: str) -> str:
    return f"lax.dynamic_update_slice({v}, {d.like(v, shape=sizes(d, v))}, {starts(d, v)})"


def in_dim(name: str) -> Recipe:
    """The forms along one axis."""

    def recipe(d: Draft, v: str) -> str | None:
        axis = some_axis(d, v)
        if axis is None:
            return None
        shape = list(d.shape(v))
        n = shape[axis]
        index, size = start(d, n), d.rng.choice((1, n, max(n - 1, 0)))
        match name:
            case "dynamic_index_in_dim":
                return f"lax.{name}({v}, {index}, {axis}, {d.rng.random() < 0.5})"
            case "dynamic_slice_in_dim":
                return f"lax.{name}({v}, {index}, {size}, {axis})"
            case "dynamic_update_index_in_dim":
                return f"lax.{name}({v}, {d.like(v, shape=shape[:axis] + shape[axis + 1 :])}, {index}, {axis})"
        return f"lax.{name}({v}, {d.like(v, shape=[*shape[:axis], size, *shape[axis + 1 :]])}, {index}, {axis})"

    return recipe


def _indices(d: Draft, batch: tuple[int, ...], limits: list[int]) -> str:
    """An array of index vectors, one component for each limit; some lie outside."""
    rng = d.rng
    shape = (*batch, len(limits))
    most = max(limits, default=1)
    low, high = rng.choice(((0, max(most, 1)), (-2, most + 3)))
    make = f"np.random.default_rng({rng.randrange(999)}).integers({low}, {max(high, low + 1)}, {shape})"
    if rng.random() < 0.25:
        found = d.find(lambda a: kind_of(a) == "int" and a.size > 0 and a.dtype.itemsize > 1)
        if found is not None and math.prod(shape):
            return f"jnp.resize({found}, {shape})"
    dtype = rng.choice(("int32", "int32", "uint32", "int64" if d.shared.x64 else "int8"))
    if low < 0 and dtype == "uint32":
        dtype = "int32"
    return d.input(dtype, shape, f"{make}.astype({values.dtype_text(dtype)})")


def _dimensions(d: Draft, v: str) -> tuple[list[int], list[int], list[int], tuple[int, ...], list[int]]:
    """Slice sizes, collapsed dimensions, indexed dimensions, the batch's shape, places of offsets in the result."""
    rng = d.rng
    shape = d.shape(v)
    rank = len(shape)
    slices = [rng.choice((n, n, 1 if n else 0, rng.randint(min(n, 1), n))) for n in shape]
    collapsed = [k for k in range(rank) if rng.random() < 0.5 and shape[k] > 0]
    for k in collapsed:
        slices[k] = 1
    indexed = rng.sample(range(rank), rng.randint(0 if rank == 0 else 1, rank)) if rank else []
    batch = tuple(rng.choice((1, 2, 3, 5, 31)) for _ in range(rng.choice((0, 1, 1, 2))))
    total = len(batch) + rank - len(collapsed)
    offsets = sorted(rng.sample(range(total), rank - len(collapsed)))
    return slices, collapsed, indexed, batch, offsets


def gather(d: Draft, v: str) -> str | None:
    slices, collapsed, indexed, batch, offsets = _dimensions(d, v)
    positions = _indices(d, batch, [d.shape(v)[k] for k in indexed])
    numbers = (
        f"lax.GatherDimensionNumbers(offset_dims={tuple(offsets)}, collapsed_slice_dims={tuple(collapsed)}, "
        f"start_index_map={tuple(indexed)})"
    )
    return f"lax.gather({v}, {positions}, {numbers}, {tuple(slices)}, mode={d.rng.choice((*MODES[:3], MODES[2]))})"


def scatter(name: str) -> Recipe:
    def recipe(d: Draft, v: str) -> str | None:
        slices, collapsed, indexed, batch, offsets = _dimensions(d, v)
        if name == "scatter" and math.prod(batch) > 1:
            batch = (1,) * len(batch)  # Which of several updates of a place remains is not defined.
        positions = _indices(d, batch, [d.shape(v)[k] for k in indexed])
        numbers = (
            f"lax.ScatterDimensionNumbers(update_window_dims={tuple(offsets)}, "
            f"inserted_window_dims={tuple(collapsed)}, "
            f"scatter_dims_to_operand_dims={tuple(indexed)})"
        )
        windows = iter(s for k, s in enumerate(slices) if k not in collapsed)
        of_batch = iter(batch)
        total = len(batch) + len(slices) - len(collapsed)
        shape = tuple(next(windows) if k in offsets else next(of_batch) for k in range(total))
        mode = d.rng.choice(("'clip'", "'drop'", "None"))
        if name == "scatter_apply":
            function = d.rng.choice(("jnp.sin", "jnp.negative", "jnp.square"))
            return f"lax.scatter_apply({v}, {positions}, {function}, {numbers}, update_shape={shape}, mode={mode})"
        return f"lax.{name}({v}, {positions}, {d.like(v, shape=shape)}, {numbers}, mode={mode})"

    return recipe


def index_take(d: Draft, v: str) -> str | None:
    rank = len(d.shape(v))
    if rank == 0:
        return None
    chosen = sorted(d.rng.sample(range(rank), d.rng.randint(1, rank)))
    positions = _indices(d, (), [d.shape(v)[k] for k in chosen])
    return f"lax.index_take({v}, jnp.abs({positions})[:, None].astype(jnp.int32), {tuple(chosen)})"


def take_along_axis(d: Draft, v: str) -> str | None:
    axis = some_axis(d, v)
    if axis is None or d.shape(v)[axis] == 0:
        return None
    count = d.rng.choice((1, d.shape(v)[axis], 3))
    shape = list(d.shape(v))
    shape[axis] = count
    n = d.shape(v)[axis]
    make = f"np.random.default_rng({d.rng.randrange(999)}).integers({-n}, {n}, {tuple(shape)}).astype(np.int32)"
    positions = f"jnp.argsort({v}, axis={axis})" if d.rng.random() < 0.4 else d.input("int32", shape, make)
    return f"jnp.take_along_axis({v}, {positions}, axis={axis})"


def full_name(d: Draft, v: str) -> str:
    """For error messages: a value and its type."""
    return f"{v}: {dtype_name(d.aval(v))}{list(d.shape(v))}"


RECIPES: dict[str, Recipe] = {
    "lax.dynamic_slice": dynamic_slice,
    "lax.dynamic_update_slice": dynamic_update_slice,
    **{
        f"lax.{n}": in_dim(n)
        for n in (
            "dynamic_index_in_dim",
            "dynamic_slice_in_dim",
            "dynamic_update_index_in_dim",
            "dynamic_update_slice_in_dim",
        )
    },
    "lax.gather": gather,
    **{
        f"lax.{n}": scatter(n)
        for n in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max", "scatter_apply")
    },
    "lax.index_take": index_take,
    "jnp.take_along_axis": take_along_axis,
}
