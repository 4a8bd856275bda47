"""When the rows of a loop write an output: once at its end, or a part in each iteration."""

from __future__ import annotations
