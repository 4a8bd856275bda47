"""`python -m tests.fuzz --seconds 600 --seed 1`: random programs of JAX, plain and stitched."""

from __future__ import annotations

import sys

from tests.fuzz.settings import apply

if __name__ == "__main__":
    apply("tests.fuzz")
    if any(a.partition("=")[0] == "--reached" for a in sys.argv):
        from tests.fuzz import probes

        probes.plant()
    from tests.fuzz.command import main

    sys.exit(main(sys.argv[1:]))
