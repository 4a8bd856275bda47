"""The page's one file: a summary that needs no script, the packed data, the style and the script."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from jax_stitch.inspect.page.payload import payload
from jax_stitch.inspect.page.summary import summary

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan import Plan

VENDOR = tuple(
    f"d3-{name}.min.js"
    for name in ("dispatch", "selection", "drag", "color", "interpolate", "timer", "ease", "transition", "zoom")
)
"""Of https://d3js.org, each after what it needs."""
SCRIPTS = (
    *("text", "data", "colours", "state", "drawing", "graph", "source", "detail", "terms", "highlight", "tables"),
    *("roofline", "search", "main"),
)
EXPLAINING = 6.0
"""Seconds for the candidates that lost; kernels beyond that say how to ask for theirs."""


def page(plan: Plan, seconds: float = EXPLAINING) -> str:
    """Return the HTML text of a plan's page."""
    return assembled(f"{plan.function} on {plan.device.name}", payload(plan, seconds), summary(plan))


def assembled(title: str, data: Mapping[str, Any], summarised: str) -> str:
    """Return one file of a title, the script's data, and HTML that is shown where no script runs."""
    script = _script()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_asset('page.css')}</style></head>\n<body>\n{_asset('page.html')}\n"
        f'<main id="summary">{summarised}</main>\n'
        f'<script type="application/octet-stream" id="data">{packed(data)}</script>\n'
        f"<!--\nThe script below begins with parts of D3:\n\n{_licences()}-->\n"
        f"<script>{script}</script>\n</body></html>\n"
    )


def packed(data: Mapping[str, Any]) -> str:
    """Return JSON, compressed, in letters that mean nothing in HTML."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def unpacked(html: str) -> Any:
    """Return the data of a page."""
    text = html.split('id="data">', 1)[1].split("<", 1)[0]
    return json.loads(gzip.decompress(base64.b64decode(text)))


@functools.cache
def _script() -> str:
    vendor = resources.files("jax_stitch.inspect.page") / "vendor"
    libraries = "\n".join((vendor / name).read_text(encoding="utf-8") for name in VENDOR)
    own = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    script = f'{libraries}\n(() => {{\n"use strict";\n{own}\n}})();\n'
    if "</script" in script.lower():
        raise ValueError("the page's script would end early: it has the text of a closing tag")
    return script


def _licences() -> str:
    vendor = resources.files("jax_stitch.inspect.page") / "vendor"
    return "\n".join((vendor / name).read_text(encoding="utf-8") for name in ("LICENSE-d3", "LICENSE-d3-ease"))


def _asset(name: str) -> str:
    return (resources.files("jax_stitch.inspect.page") / "assets" / name).read_text(encoding="utf-8")
