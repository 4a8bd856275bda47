"""Derivatives, batched forms and pruned forms of a stitched operation: each is a stitched operation again.

Everything is made by JAX's public transformations from the function that the operation stands for. A derivative is two
operations, so that JAX can part them: the function with what its derivative needs, and the linear map of the tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from jax_stitch.frontend.capture.support import callbacks_effects
from jax_stitch.jit.primitive import Request, bind_function, needed_part, stitched_p
from jax_stitch.util.jax_names import ClosedJaxpr, JaxprEqn, ad, batching, jaxpr_as_fun, pe
from jax_stitch.util.tracebacks import hide_frames


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, origin: Request) -> tuple[Any, Any]:
    varied = [n for n, tangent in enumerate(tangents) if not isinstance(tangent, ad.Zero)]
    linear_maps: list[tuple[list[Any], jax.tree_util.PyTreeDef]] = []

    def forward(*arrays: Any) -> tuple[list[Any], list[Any]]:
        def of_varied(*chosen: Any) -> list[Any]:
            return jaxpr_as_fun(jaxpr)(*_replaced(arrays, varied, chosen))

        results, linear_map = jax.linearize(of_varied, *(arrays[n] for n in varied))
        linear_maps.append(jax.tree.flatten(linear_map))
        return results, [leaf for leaf in linear_maps[-1][0] if isinstance(leaf, jax.core.Tracer)]

    values, tree = bind_function(forward, primals, origin)
    results, residuals = jax.tree.unflatten(tree, values)
    ((leaves, linear_tree),) = linear_maps
    differentiable = [n for n, aval in enumerate(jaxpr.out_avals) if aval.to_tangent_aval().dtype != jax.dtypes.float0]

    def linear(*arrays: Any) -> list[Any]:
        given = iter(arrays[: len(residuals)])
        filled = [next(given) if isinstance(leaf, jax.core.Tracer) else leaf for leaf in leaves]
        moved = jax.tree.unflatten(linear_tree, filled)(*arrays[len(residuals) :])
        return [moved[n] for n in differentiable]

    moved, _ = bind_function(linear, [*residuals, *(tangents[n] for n in varied)], origin)
    zeros = [ad.Zero(aval.to_tangent_aval()) for aval in jaxpr.out_avals]
    return results, _replaced(zeros, differentiable, moved)


def _transpose(cotangents: Sequence[Any], *arrays: Any, jaxpr: ClosedJaxpr, origin: Request) -> list[Any]:
    linear = [n for n, array in enumerate(arrays) if ad.is_undefined_primal(array)]
    known = [n for n in range(len(arrays)) if n not in linear]
    given = [n for n, cotangent in enumerate(cotangents) if not isinstance(cotangent, ad.Zero)]
    types = [_type_in_place(jaxpr.in_avals[n]) for n in linear]

    def transposed(*values: Any) -> Any:
        def of_linear(*chosen: Any) -> list[Any]:
            every = _replaced(_replaced(arrays, known, values[: len(known)]), linear, chosen)
            results = jaxpr_as_fun(jaxpr)(*every)
            return [results[n] for n in given]

        return jax.linear_transpose(of_linear, *types)(list(values[len(known) :]))

    none: list[Any] = [None] * len(arrays)
    if not given:
        return none
    results, _ = bind_function(transposed, [*(arrays[n] for n in known), *(cotangents[n] for n in given)], origin)
    return _replaced(none, linear, results)


def _batch(
    axis: Any, arrays: Sequence[Any], axes: Sequence[int | None], *, jaxpr: ClosedJaxpr, origin: Request
) -> tuple[list[Any], list[int | None]]:
    """Batch the operation; ``axis`` is JAX's own description of what is mapped: name, size, and the mesh axes that it
    lies on.
    """
    if jaxpr.effects == callbacks_effects(jaxpr) and all(a is None for a in axes):
        return stitched_p.bind(*arrays, jaxpr=jaxpr, origin=origin), [None] * len(jaxpr.out_avals)

    def mapped(fun: Callable[..., list[Any]], out_axes: Any) -> Callable[..., list[Any]]:
        """Return ``fun`` of a position along the axis and of the arrays, mapped."""
        return jax.vmap(fun, (0, *axes), out_axes, axis.name, axis.size, axis.spmd_name)

    depends: list[bool] = []

    def note(position: Any, *elements: Any) -> list[Any]:
        results = jaxpr_as_fun(jaxpr)(*elements)
        depends[:] = [type(result) is type(position) for result in results]  # a tracer of the mapping, or of none
        return results

    # JAX refuses a result that does not depend on the position, but is mapped, where the user wrote out_axes=None.
    jax.eval_shape(mapped(note, 0), _positions(axis, arrays, axes), *arrays)
    out_axes = [0 if d else None for d in depends]

    def batched(*elements: Any) -> list[Any]:
        run = mapped(lambda _, *given: jaxpr_as_fun(jaxpr)(*given), out_axes)
        return run(_positions(axis, elements, axes), *elements)

    results, _ = bind_function(batched, arrays, origin)
    return results, out_axes


def _positions(axis: Any, arrays: Sequence[Any], axes: Sequence[int | None]) -> jax.Array:
    """Return the positions along a mapped axis, split as the arrays are where the mesh has explicit axes."""
    for array, dimension in zip(arrays, axes, strict=True):
        sharding = jax.typeof(array).sharding
        if dimension is not None and sharding.spec[dimension] is not None:
            return jnp.arange(axis.size, out_sharding=sharding.update(spec=PartitionSpec(sharding.spec[dimension])))
    return jnp.arange(axis.size)


def _prune(used: list[bool], *rest: Any) -> tuple[list[bool], JaxprEqn | None]:
    """Leave out unused results and the arguments that only they need, as JAX does inside ``jax.jit``.

    ``rest`` ends with the equation. JAX 0.12 passes before it which references are read later: a stitched operation
    has none.
    """
    equation: JaxprEqn = rest[-1]
    effects = callbacks_effects(equation.params["jaxpr"])
    if not any(used) and not effects:
        return [False] * len(equation.invars), None
    if all(used):
        return [True] * len(equation.invars), equation
    jaxpr, inputs = needed_part(equation.params["jaxpr"], used)
    return list(inputs), equation.replace(
        invars=[v for v, keep in zip(equation.invars, inputs, strict=True) if keep],
        outvars=[v for v, keep in zip(equation.outvars, used, strict=True) if keep],
        params={**equation.params, "jaxpr": jaxpr},
    )


def _type_in_place(aval: Any) -> jax.ShapeDtypeStruct:
    """Return a type with what it says about the devices: on a mesh of explicit axes, and inside a ``shard_map``."""
    sharding = aval.sharding if not aval.sharding.mesh.empty else None
    return jax.ShapeDtypeStruct(
        aval.shape,
        aval.dtype,
        weak_type=aval.weak_type,
        sharding=sharding,
        manual_axis_type=aval.manual_axis_type,
    )


def _replaced(values: Sequence[Any], places: Sequence[int], others: Sequence[Any]) -> list[Any]:
    """Return ``values`` with ``others`` at those places."""
    result = list(values)
    for place, other in zip(places, others, strict=True):
        result[place] = other
    return result


ad.primitive_jvps[stitched_p] = _jvp
ad.primitive_transposes[stitched_p] = _transpose
batching.fancy_primitive_batchers[stitched_p] = _batch
dead_code_rules: Any = pe.dce_rules  # typed differently by each version of JAX
dead_code_rules[stitched_p] = _prune
hide_frames(__file__)
