"""Other ways to compute what a workload computes, and the limit of the machine: a plain copy."""

from __future__ import annotations

import importlib.util

COMPILED, NATIVE, COPY, FIRST_USE = "torch.compile", "torch kernels", "copy", "first use"
"""What ``bench.peers.answers`` is asked for: the workload through ``torch.compile``; through the kernels that PyTorch
has for it, written by hand; the memory bandwidth of a copy; and what only the first stitched function of all makes."""

_HAND_WRITTEN = frozenset({"layer_norm", "layer_norm_and_gradient", "cross_entropy", "cross_entropy_gradient"})
_COMPILED = _HAND_WRITTEN | {
    *("layer_norm_gradient", "rms_norm_rope", "rms_norm_rope_and_gradient", "group_norm", "group_norm_and_gradient"),
    *("residual_dropout_layer_norm", "negative_log_likelihood", "negative_log_likelihood_gradient", "batch_norm"),
    *("batch_norm_gradient", "standardise", "logsumexp", "cumsum", "adamw", "adamw_clipped"),
}


def available(workload: str, device: str) -> tuple[str, ...]:
    """The peers that there are for a workload on a device, in this installation."""
    if importlib.util.find_spec("torch") is None:
        return ()
    softmax = workload.startswith("softmax")
    compiled = (COMPILED,) if softmax or workload in _COMPILED else ()
    by_hand = (NATIVE,) if device == "cuda" and (softmax or workload in _HAND_WRITTEN) else ()
    return compiled + by_hand


def missing() -> str | None:
    """A line that says which peers cannot be run; None if all can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: no times of torch.compile (pip install '.[torch]')"
    return None
