"""Programs that run on devices of several processes, and the store of ``jax.distributed`` that these share."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from typing import Any

import jax

from jax_stitch.jit.tiers.agreement import Agreement
from jax_stitch.util.jax_names import distributed_state

_agreements: dict[tuple[Any, str], Agreement] = {}
"""By the client of the store, and the hash of the program."""
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
    """Return whether any of a call's arrays lies on devices of other processes too."""
    return any(isinstance(leaf, jax.Array) and not leaf.is_fully_addressable for leaf in jax.tree.leaves(values))


def agreement_on(traced: jax.stages.Traced) -> Agreement | None:
    """Return what the processes are to agree on for a program, by what ``jax.jit`` would run; None if they share no
    store. Of one text there is one, whatever JAX forgets meanwhile: the others count their calls on.
    """
    client = _client()
    if client is None:
        return None
    program = _text_of(traced)
    made = Agreement(_JaxStore(client), program, jax.process_index(), jax.process_count())
    with _lock:
        return _agreements.setdefault((client, program), made)


def agreement_before(traced: jax.stages.Traced) -> Agreement | None:
    """Return the agreement on a program which this process has run before; None if there is none."""
    if not _agreements:
        return None
    with _lock:
        return _agreements.get((_client(), _text_of(traced)))


def _client() -> Any:
    """Return JAX's client of the store; None where there is none."""
    return None if distributed_state is None else distributed_state.client


def _text_of(traced: jax.stages.Traced) -> str:
    return hashlib.sha256(traced.lower().as_text().encode()).hexdigest()[:32]
