"""What the tests of ``bench.gpu.pool`` ask its workers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from bench.worker import Tell


def answer(request: Mapping[str, Any], tell: Tell) -> dict[str, str]:
    """As told."""
    tell("launching")
    match request["how"]:
        case "hang":
            time.sleep(99)
        case "crash":
            os._exit(3)
        case "raise":
            raise RuntimeError("an illegal access")
    return {"verdict": request["how"], "told": str(os.getpid())}
