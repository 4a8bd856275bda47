"""Speed and memory, by the measurements of bench/parser.py."""

from __future__ import annotations

import pytest

from bench.parser import growth, measure, of_size, transformer_text


@pytest.mark.slow
def test_one_layer() -> None:
    """A generous bound, for machines that do other things at the same time."""
    found = measure(transformer_text(layers=1, width=32), repeats=1)
    assert found.bytes > 100_000 and found.megabytes_per_second > 0.5 and found.peak < 25 * found.bytes


@pytest.mark.slow
def test_twelve_layers() -> None:
    text = transformer_text()
    found = measure(text)
    assert found.bytes > 1_000_000
    assert found.megabytes_per_second >= 3
    assert found.peak <= 25 * found.bytes
    points = [measure(of_size(text, int(size * 1e6)), repeats=2) for size in (0.1, 0.5, 2, 8, 20)]
    assert growth(points) < 1.15
    assert all(p.peak <= 25 * p.bytes for p in points)
