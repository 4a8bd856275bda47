"""How many operands and which attributes each operation must have."""

from __future__ import annotations

from .opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY, words

_EXACT = {
    0: "constant iota parameter partition-id replica-id rng-get-and-update-state",
    1: """all-gather-done all-reduce-done async-done async-update bitcast bitcast-convert broadcast cholesky
        collective-permute-done copy copy-done copy-start domain fft get-dimension-size get-tuple-element infeed
        opt-barrier recv recv-done reshape reverse rng-bit-generator send-done shuffle slice topk transpose while""",
    2: "add-dependency convolution dot gather outfeed pad send set-dimension-size triangular-solve",
    3: "batch-norm-training clamp ragged-dot select select-and-scatter",
    4: "scaled-dot",
    5: "batch-norm-grad batch-norm-inference",
}
OPERANDS: dict[str, int] = {
    **dict.fromkeys(ELEMENTWISE_UNARY, 1),
    **dict.fromkeys(ELEMENTWISE_BINARY, 2),
    **{opcode: n for n, opcodes in _EXACT.items() for opcode in words(opcodes)},
}
"""Number of operands of the operations that have a fixed number."""

LEAST_OPERANDS: dict[str, int] = {
    **dict.fromkeys(
        words("all-reduce all-gather reduce-scatter collective-permute concatenate map sort dynamic-reshape"), 1
    ),
    **dict.fromkeys(words("conditional dynamic-slice reduce reduce-window"), 2),
    "scatter": 3,
    "dynamic-update-slice": 2,
}

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "all-gather": ("dimensions",),
    "all-gather-start": ("dimensions",),
    "all-reduce": ("to_apply",),
    "all-reduce-start": ("to_apply",),
    "async-start": ("calls",),
    "batch-norm-grad": ("epsilon", "feature_index"),
    "batch-norm-inference": ("epsilon", "feature_index"),
    "batch-norm-training": ("epsilon", "feature_index"),
    "call": ("to_apply",),
    "collective-reduce": ("to_apply",),
    "collective-permute": ("source_target_pairs",),
    "collective-permute-start": ("source_target_pairs",),
    "compare": ("direction",),
    "concatenate": ("dimensions",),
    "convolution": ("dim_labels",),
    "custom-call": ("custom_call_target",),
    "domain": ("domain",),
    "dynamic-slice": ("dynamic_slice_sizes",),
    "fft": ("fft_type", "fft_length"),
    "fusion": ("kind", "calls"),
    "gather": ("offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim", "slice_sizes"),
    "get-dimension-size": ("dimensions",),
    "get-tuple-element": ("index",),
    "iota": ("iota_dimension",),
    "map": ("to_apply",),
    "pad": ("padding",),
    "reduce": ("dimensions", "to_apply"),
    "reduce-precision": ("exponent_bits", "mantissa_bits"),
    "reduce-scatter": ("dimensions", "to_apply"),
    "reduce-window": ("to_apply",),
    "reverse": ("dimensions",),
    "rng": ("distribution",),
    "rng-bit-generator": ("algorithm",),
    "rng-get-and-update-state": ("delta",),
    "scan": ("dimensions", "num_carries", "to_apply"),
    "scatter": (
        "update_window_dims",
        "inserted_window_dims",
        "scatter_dims_to_operand_dims",
        "index_vector_dim",
        "to_apply",
    ),
    "select-and-scatter": ("select", "scatter"),
    "set-dimension-size": ("dimensions",),
    "shuffle": ("dimensions", "mode"),
    "slice": ("slice",),
    "sort": ("dimensions", "to_apply"),
    "topk": ("k",),
    "transpose": ("dimensions",),
    "while": ("condition", "body"),
}
"""Attributes an operation cannot do without."""
