"""Programs that run on devices of several processes, and the store of ``jax.distributed`` that these share."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import threading
from typing import Any

import jax

from jax_stitch.tiers.agreement import Agreement

_seen: collections.Counter[str] = collections.Counter()
"""Programs met so far, by their hash. Those of one text have numbers in their order, which all processes share."""
_lock = threading.Lock()


class _JaxStore:
    """The store of the coordination service, which JAX itself uses to bring its processes together."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, key: str, value: str) -> bool:
        try:
            self._client.key_value_set(key, value)
        except jax.errors.JaxRuntimeError:  # There is one, or the service is gone.
            return False
        return True

    def get(self, key: str, seconds: float) -> str | None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            if not seconds:
                return str(self._client.key_value_try_get(key))
            return str(self._client.blocking_key_value_get(key, max(1, int(seconds * 1000))))
        return None


def spans_processes(values: Any) -> bool:
    """Whether any of a call's arrays lies on devices of other processes too."""
    return any(isinstance(leaf, jax.Array) and not leaf.is_fully_addressable for leaf in jax.tree.leaves(values))


def agreement_on(traced: jax.stages.Traced) -> Agreement | None:
    """What the processes are to agree on for a program, by what ``jax.jit`` would run; None where they share no store.

    All processes have to come to their programs in one order: those with collectives do.
    """
    from jax._src import distributed  # JAX has no public way to its client.

    client = distributed.global_state.client
    if client is None:
        return None
    program = hashlib.sha256(traced.lower().as_text().encode()).hexdigest()[:32]
    with _lock:
        number = _seen[program]
        _seen[program] += 1
    return Agreement(_JaxStore(client), f"{program}.{number}", jax.process_index(), jax.process_count())
