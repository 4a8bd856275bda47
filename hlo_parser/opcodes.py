"""XLA's opcodes."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


ELEMENTWISE_UNARY = words(
    """abs acos acosh asin asinh atanh cbrt ceil convert cosine cosh count-leading-zeros erf exp2 exponential
    exponential-minus-one floor imag is-finite log log-plus-one log2 logistic negate not popcnt real reduce-precision
    round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt tan tanh"""
)
ELEMENTWISE_BINARY = words(
    """add and atan2 compare complex divide maximum minimum mulhi multiply or power remainder shift-left
    shift-right-arithmetic shift-right-logical stochastic-convert subtract xor"""
)
COLLECTIVES = words(
    """all-gather all-gather-done all-gather-start all-reduce all-reduce-done all-reduce-start all-to-all
    collective-broadcast collective-permute collective-permute-done collective-permute-start collective-reduce
    ragged-all-to-all reduce-scatter"""
)

OPCODES = (
    ELEMENTWISE_UNARY
    | ELEMENTWISE_BINARY
    | COLLECTIVES
    | words(
        """add-dependency after-all async-done async-start async-update batch-norm-grad batch-norm-inference
        batch-norm-training bitcast bitcast-convert broadcast call cholesky clamp concatenate conditional constant
        convolution copy copy-done copy-start custom-call domain dot dynamic-reshape dynamic-slice
        dynamic-update-slice fft fusion gather get-dimension-size get-tuple-element infeed iota map opt-barrier
        outfeed pad parameter partition-id ragged-dot recv recv-done reduce reduce-window replica-id reshape reverse
        rng rng-bit-generator rng-get-and-update-state scaled-dot scan scatter select select-and-scatter send
        send-done set-dimension-size shuffle slice sort topk transpose triangular-solve tuple while"""
    )
)
"""Every opcode XLA writes, but for the short forms of asynchronous operations (see ``asynchronous``)."""


def asynchronous(opcode: str) -> tuple[str, str] | None:
    """Return ("dot", "start") for ``dot-start``, short for an async-start that wraps a dot; so of -update and -done."""
    if opcode in OPCODES:
        return None
    base, _, stage = opcode.rpartition("-")
    return (base, stage) if stage in ("start", "update", "done") and base in OPCODES else None


def is_known(opcode: str) -> bool:
    """Return whether XLA, as far as this library knows it, has the opcode."""
    return opcode in OPCODES or asynchronous(opcode) is not None
