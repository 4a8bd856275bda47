"""A small SVG canvas: boxes, text, arrows, in the few colours that all drawings share.

Drawings are text: the same calls give the same bytes, so that a test can compare what is committed with what is drawn.
They have a light ground of their own, and read well in the dark theme too.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

INK, FAINT, GROUND = "#1f2933", "#64748b", "#fbfcfe"
XLA, STITCHED, MEMORY, CHIP, OTHER = "#5b8def", "#e8833a", "#cbd5e1", "#3aa675", "#9b6dd6"
"""Colours: kernels of XLA, stitched kernels, device memory, values on the chip, a second thing of the same kind."""
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
MONO = "ui-monospace, 'SFMono-Regular', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Canvas:
    """A drawing in the making; ``svg()`` is its text."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def box(
        self, x: float, y: float, w: float, h: float, fill: str = "none", *, line: str = INK, dash: bool = False
    ) -> None:
        """A rectangle with round corners. A fill is drawn pale, so that text on it can be read."""
        pale = f'fill="{fill}" fill-opacity="0.22"' if fill != "none" else 'fill="none"'
        dashed = ' stroke-dasharray="5 4"' if dash else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" {pale} stroke="{line}"'
            f' stroke-width="1.3"{dashed}/>'
        )

    def solid(self, x: float, y: float, w: float, h: float, fill: str) -> None:
        """A rectangle in full colour, for what is too small to hold text."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="2" fill="{fill}"/>')

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 13,
        anchor: str = "middle",
        fill: str = INK,
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        """One line of text; ``y`` is its base line."""
        weight = ' font-weight="600"' if bold else ""
        family = f' font-family="{MONO}"' if mono else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" fill="{fill}"{weight}{family}'
            f' xml:space="preserve">{escape(words)}</text>'
        )

    def lines(self, x: float, y: float, rows: Sequence[str], *, size: float = 12, mono: bool = True) -> None:
        """Text of several lines, from the left."""
        for i, row in enumerate(rows):
            self.text(x, y + i * size * 1.5, row, size=size, anchor="start", mono=mono)

    def label(self, x: float, y: float, w: float, h: float, words: str, fill: str, *, size: float = 13) -> None:
        """A box with text in its middle; a line break makes several lines."""
        self.box(x, y, w, h, fill, line=fill if fill not in (MEMORY, "none") else FAINT)
        rows = words.split("\n")
        for i, row in enumerate(rows):
            self.text(x + w / 2, y + h / 2 + size * 0.36 + (i - (len(rows) - 1) / 2) * size * 1.35, row, size=size)

    def arrow(
        self, x1: float, y1: float, x2: float, y2: float, *, line: str = INK, dash: bool = False, width: float = 1.5
    ) -> None:
        """A straight arrow."""
        dashed = ' stroke-dasharray="4 3"' if dash else ""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{line}" stroke-width="{width:g}"{dashed}'
            f' marker-end="url(#{_marker(line)})"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, *, line: str = FAINT, dash: bool = False) -> None:
        """A straight line."""
        dashed = ' stroke-dasharray="4 3"' if dash else ""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{line}" stroke-width="1.3"{dashed}/>'
        )

    def curve(self, path: str, *, line: str = INK) -> None:
        """An arrow along an SVG path."""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{line}" stroke-width="1.5" marker-end="url(#{_marker(line)})"/>'
        )

    def memory(self, y: float, words: str, *, x: float = 20, w: float | None = None) -> None:
        """Device memory, as a bar across the drawing."""
        self.label(x, y, (self.width - 2 * x) if w is None else w, 26, words, MEMORY, size=12)

    def svg(self) -> str:
        """The drawing as text."""
        used = [c for c in (INK, FAINT, XLA, STITCHED, CHIP, OTHER) if any(f"#{_marker(c)})" in p for p in self.parts)]
        markers = "".join(
            f'<marker id="{_marker(c)}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
            f' orient="auto-start-reverse"><path d="M0 0.6 L8 4 L0 7.4 z" fill="{c}"/></marker>'
            for c in used
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}"'
            f' height="{self.height}" role="img" font-family="{SANS}">'
        )
        ground = f'<rect width="{self.width}" height="{self.height}" rx="10" fill="{GROUND}"/>'
        rows = [head, f"<title>{escape(self.title)}</title>", f"<defs>{markers}</defs>", ground, *self.parts, "</svg>"]
        return "\n".join(rows) + "\n"


def _marker(colour: str) -> str:
    return f"tip{colour[1:]}"
