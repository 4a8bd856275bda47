"""Numbers and tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SHOWN = 4


def format_bytes(count: float) -> str:
    """Return ``33_554_432`` as "33.6 MB": decimal units, as memory bandwidths are given."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def format_seconds(seconds: float) -> str:
    """Return ``0.00123`` as "1.23 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 0.9995:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def shortened(words: Sequence[str]) -> str:
    """Join words by commas: of many the first four, and how many more there are."""
    more = len(words) - _SHOWN
    return ", ".join(words[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def format_ratio(new: float, old: float) -> str:
    """Return ``new / old`` as "0.25x", or a dash where nothing can be divided by."""
    return f"{new / old:.2f}x" if old else "-"


def format_fewer(new: float, old: float) -> str:
    """Return what became of ``old`` launches or bytes: "6x fewer", "1.3x more" or "as many"; a dash if there were
    none.
    """
    if not old or not new:
        return "as many" if old == new else "none left" if old else "-"
    times = _times(max(old / new, new / old))
    return "as many" if times == "1x" else f"{times} {'fewer' if new < old else 'more'}"


def format_faster(new: float, old: float) -> str:
    """Return a speed-up: ``2.0, 5.0`` seconds as "2.5x as fast"."""
    return f"{_times(old / new)} as fast" if old and new else "-"


def _times(factor: float) -> str:
    """Return ``23.16`` as "23.2x": three digits or so, and none that are zero behind the point."""
    digits = 0 if factor >= 99.5 else 1 if factor >= 9.95 else 2
    text = f"{factor:,.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text}x"


def count(number: int, word: str, plural: str) -> str:
    """Return ``1`` as "one launch", ``1034`` as "1,034 launches"."""
    return f"one {word}" if number == 1 else f"{number:,} {plural}"


def text_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), indent: str = ""
) -> str:
    """Return columns separated by two spaces under a ruled header; the columns in ``right`` are aligned to the
    right.
    """
    body = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(row[i]) for row in body) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        return (indent + "  ".join(cells)).rstrip()

    rule = indent + "  ".join("-" * w for w in widths)
    return "\n".join([line(body[0]), rule, *map(line, body[1:])])


def one_line(text: str) -> str:
    """Return ``text`` with an underscore for all that is not printable: line ends of whatever kind, control characters,
    marks that change the direction of writing, halves of surrogate pairs.

    File names and scopes may hold anything, and come from other people's programs (``jax.export``).
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else "_" for c in text)


def shorten(text: str, width: int) -> str:
    """Return at most ``width`` characters, with an ellipsis if something was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"
