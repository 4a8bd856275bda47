"""The process that makes programs in the background, where faults strike in it, and not at an idle priority: on a busy
machine nothing would be made in time for a fault to meet it.
"""

from __future__ import annotations

import json
import signal
from typing import Any

from jax_stitch.backend.compile import effort
from jax_stitch.jit.rebuilt import background, elsewhere
from jax_stitch.jit.stitching import maker
from jax_stitch.util.child import Keeper, serve
from jax_stitch.util.child.process import Message
from tests.faults.ground import forget
from tests.faults.inject import Fault, injected

VARIABLE = "JAX_STITCH_TEST_FAULT"
"""The fault for the next request, as JSON, or null; the parent's environment comes with each."""


class FaultyKeeper(Keeper):
    """In place of ``elsewhere.MAKER``."""

    def __init__(self) -> None:
        settings = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "JAX_PLATFORMS": "cpu"}
        super().__init__("tests.faults.maker", settings)
        self.struck = False

    def ask(self, *args: Any) -> Message:
        reply = super().ask(*args)
        self.struck = reply[0].get("struck", False)
        return reply


def install() -> FaultyKeeper:
    """Has this process's programs made by such a process."""
    keeper = FaultyKeeper()
    background.at_stop(keeper.interrupt)
    elsewhere.MAKER = keeper
    return keeper


def answer(header: dict[str, Any], payload: bytes) -> Message:
    """The reply to a request, while the fault that it brings is there."""
    told = header["environment"].pop(VARIABLE, None)
    if told is not None:
        forget()
    facts = json.loads(told or "null")
    if told is None:
        return maker.answer(header, payload)
    from tests.faults.trial import everything_is_worth_it

    with everything_is_worth_it():
        if facts is None:
            return maker.answer(header, payload)
        fault = Fault(**facts)
        with injected(fault):
            reply, data = maker.answer(header, payload)
    return reply | {"struck": fault.struck}, data


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, maker._end)
    effort.low.set(True)
    serve(answer, maker._IDLE)
