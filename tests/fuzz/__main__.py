"""`python -m tests.fuzz --seconds 600 --seed 1`: random programs of JAX, plain and stitched."""

from __future__ import annotations

import sys

from tests.fuzz.settings import apply

if __name__ == "__main__":
    apply("tests.fuzz")
    from tests.fuzz.command import main

    sys.exit(main(sys.argv[1:]))
