"""The passes over a graph before its patterns are searched, in their order."""

from __future__ import annotations

from jax_stitch.devices import Device
from jax_stitch.fusion.launches.starts import own_starts
from jax_stitch.fusion.rewrites.chosen import expanded
from jax_stitch.fusion.rewrites.first_extrema import first_extrema
from jax_stitch.fusion.rewrites.joined_products import products_joined
from jax_stitch.fusion.rewrites.operand_layouts import upright
from jax_stitch.fusion.rewrites.scatters import joined
from jax_stitch.fusion.rewrites.short_reductions import short_reductions
from jax_stitch.fusion.rewrites.small_dots import written_out
from jax_stitch.fusion.rewrites.swapped_operands import exchanged
from jax_stitch.fusion.rewrites.touched_rows import touched_rows
from jax_stitch.fusion.rewrites.turned_once import turned_once
from jax_stitch.fusion.rewrites.vector_products import vector_products
from jax_stitch.fusion.rewrites.with_producers import with_producers
from jax_stitch.fusion.streams.choice import with_streams
from jax_stitch.graph.model import Graph
from jax_stitch.graph.rewrites.complex_parts import with_parts
from jax_stitch.graph.verifier import verify
from jax_stitch.ir.passes import Pass, Pipeline


def _packs(device: Device) -> bool:
    """Return whether kernels without data in common share launches."""
    return device.target.packs_launches


def _in_vectors(device: Device) -> bool:
    """Return whether a compiler makes vectors of what lanes compute."""
    return device.target.lanes_are_vectors


STREAMING: Pipeline[Graph, Device] = Pipeline("stream", Pass("stream-reductions", with_streams), verify=verify)
"""Compute arrays that only reductions read tile by tile, with the reductions."""

EXPANDING: Pipeline[Graph, Device] = Pipeline(
    "expand",
    Pass("update-touched-rows", touched_rows),
    Pass("split-scatter-starts", own_starts, _packs),
    Pass("expand-small-products", written_out),
    Pass("expand-vector-products", vector_products, _in_vectors),
    Pass("expand-short-reductions", short_reductions, _in_vectors),
    Pass("expand-argmax", first_extrema, _in_vectors),
    verify=verify,
)
"""Expand other operations into elementwise ones, so that kernels can hold them."""

PACKING: Pipeline[Graph, Device] = Pipeline(
    "pack",
    Pass("join-scatters", lambda graph, device: joined(graph), _packs),
    Pass("join-products", lambda graph, device: products_joined(graph), _packs),
    Pass("swap-operands", lambda graph, device: exchanged(graph), _packs),
    Pass("share-transposes", lambda graph, device: turned_once(graph), _packs),
    Pass("lay-out-operands", lambda graph, device: upright(graph), _packs),
    Pass("take-producers", lambda graph, device: with_producers(graph), _packs),
    verify=verify,
)
"""Merge operations that stay with XLA's libraries into fewer and larger ones, and free them of layout changes."""


def splitting(whole: frozenset[str]) -> Pipeline[Graph, Device]:
    """Return the pipeline that takes complex values apart, but those of nodes of these names."""
    return Pipeline("complex", Pass("split-complex", lambda graph, device: with_parts(graph, whole)), verify=verify)


def expanding(chosen: frozenset[int]) -> Pipeline[Graph, Device]:
    """Return the pipeline that writes these nodes out, by their ids: windows, convolutions and factorizations."""
    return Pipeline(
        "expand-chosen",
        Pass("expand-if-taken", lambda graph, device: expanded(graph, chosen, device)),
        verify=verify,
    )
