"""The page as text: whole, small, self-contained, and no program can put markup into it. No browser is needed."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import html.parser
import re
from pathlib import Path

import pytest

from jax_stitch.inspect.page.html import page, unpacked
from jax_stitch.inspect.report.plan import Plan
from tests.page.plans import layered, normalisation

EVIL = "</script><img src=x onerror=alert(1)><script>alert(2)</script>-->"


class Page(html.parser.HTMLParser):
    """Checks that tags are balanced, and collects them, the text, and the scripts."""

    VOID = frozenset({"meta", "rect", "line", "input", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += "" if self.open and self.open[-1] in ("script", "style") else data


@functools.cache
def _page(plan: Plan) -> str:
    return page(plan, seconds=2.0)


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    """A script, style, picture or font from elsewhere would make the page useless without a network."""
    text = _page(normalisation())
    found = Page(text)
    outside = [(tag, attrs) for tag, attrs in found.tags if {"src", "href", "srcset"} & attrs.keys() or tag == "link"]
    assert not outside
    style = text.split("<style>")[1].split("</style>")[0]
    assert "url(" not in style and "@import" not in style
    assert f"{normalisation().xla_launches} launches of XLA become 1" in found.text, "figures for who runs no script"


def test_only_the_pages_own_script_may_run() -> None:
    """The policy names the script by its hash; a hash of other text would stop the page itself."""
    text = _page(normalisation())
    (policy,) = (
        a["content"] or "" for t, a in Page(text).tags if "Content-Security-Policy" in str(a.get("http-equiv"))
    )
    script = text.split("<script>")[-1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_the_licences_of_the_libraries_are_on_the_page() -> None:
    text = _page(normalisation())
    assert "Permission to use, copy, modify, and/or distribute this software" in text
    assert "Robert Penner" in text and "Neither the name of the author" in text


def _with_evil(plan: Plan) -> Plan:
    kernels = tuple(dataclasses.replace(k, name=EVIL, schedule=EVIL, source=f"// {EVIL}") for k in plan.kernels)
    boundaries = tuple(dataclasses.replace(b, reason=EVIL, instruction=EVIL) for b in plan.boundaries)
    return dataclasses.replace(plan, function=EVIL, kernels=kernels, boundaries=boundaries, notes=(EVIL,))


def test_no_program_can_put_markup_into_the_page(tmp_path: Path) -> None:
    """Names of scopes, functions, kernels and notes come from anyone's program: each must stay text."""
    plan = _with_evil(layered(tmp_path, layers=2, parts=6, scope="<img src=x onerror=alert(3)>"))
    for text in (page(plan, 1.0), plan._repr_html_(), plan.kernels[0]._repr_html_()):
        tags = [tag for tag, _ in Page(text).tags]
        assert "img" not in tags and tags.count("script") == (2 if "<!doctype" in text else 0)
    assert unpacked(page(plan, 1.0))["function"] == EVIL, "it is there, as data"


def test_data_is_letters_that_mean_nothing_in_html(tmp_path: Path) -> None:
    text = page(_with_evil(layered(tmp_path, layers=2, parts=6)), 1.0)
    assert re.search(r'id="data">[A-Za-z0-9+/=]+</script>', text)


def test_a_layer_norm_is_a_small_page() -> None:
    assert len(_page(normalisation())) < 300_000


def test_twelve_layers_of_five_thousand_operations_stay_below_a_megabyte_and_a_half(tmp_path: Path) -> None:
    """The page before this one took 7.2 MB for twelve layers."""
    plan = layered(tmp_path)
    text = page(plan, 1.0)
    data = unpacked(text)
    assert len(data["ops"]["name"]) > 5000
    assert len(text) < 1_500_000
    assert len(data["groups"]["label"]) < 1000, "layers that repeat are folded"
    assert 12 in data["groups"]["times"]


@pytest.mark.parametrize("which", ["normalisation", "layered"])
def test_every_link_leads_somewhere(which: str, tmp_path: Path) -> None:
    """An index out of range would stop the script in the middle of a pane."""
    data = unpacked(_page(normalisation()) if which == "normalisation" else page(layered(tmp_path, layers=4), 1.0))
    ops, strings = data["ops"], len(data["strings"])
    count = len(ops["name"])
    assert {len(column) for column in ops.values()} == {count}
    assert len(set(ops["name"])) == count, "an operation's name is its address"
    assert all(0 <= n < strings for key in ("op", "type", "scope") for n in ops[key])
    assert all(0 <= r < count for reads in ops["reads"] for r in reads)
    shown = {(f, line) for f, file in enumerate(data["files"]) for line, _ in file["lines"]}
    assert {(f, n) for f, n in zip(ops["file"], ops["line"], strict=True) if f >= 0} <= shown
    for program in data["programs"]:
        kernels = len(program["kernels"])
        assert all(-1 <= k < kernels for k in program["of"]) and len(program["of"]) == count
        for kernel in program["kernels"]:
            assert all(0 <= i < count for i in kernel["members"])
            assert all(0 <= b < len(data["programs"][0]["kernels"]) for b in (*kernel["replaces"], *kernel["shares"]))
        assert all(-1 <= p < kernels and 0 <= c < kernels for p, c, _ in program["transfers"])
    assert all(0 <= p < count and 0 <= c < count and r < strings for p, c, _, r, _ in data["stops"])
    if data["groups"]:
        assert max(data["groups"]["of"]) < len(data["groups"]["label"]) and len(data["groups"]["of"]) == count


def test_the_users_lines_are_there_and_no_others_of_long_files(tmp_path: Path) -> None:
    """Whole files would put other people's libraries, and megabytes, on the page."""
    data = unpacked(page(layered(tmp_path, layers=2, parts=4), 1.0))
    (file,) = data["files"]
    assert file["name"] == "model.py" and file["found"]
    assert file["lines"][1] == [2, "    x = exponential(x)  # line 2"]


def test_a_file_that_is_not_there_leaves_its_line_numbers(tmp_path: Path) -> None:
    """Plans are made of dumps from other machines as well."""
    plan = layered(tmp_path, layers=2, parts=4)
    (tmp_path / "model.py").unlink()
    (file,) = unpacked(page(plan, 1.0))["files"]
    assert not file["found"] and [line for line, _ in file["lines"]] == [2, 3, 4, 5]


def test_a_plan_of_nothing_has_a_page(tmp_path: Path) -> None:
    """A function that is left to jax.jit, or has no operations, still has figures and a reason."""
    plan = dataclasses.replace(
        layered(tmp_path, layers=1, parts=3), kernels=(), boundaries=(), unstitched="it calls Python"
    )
    data = unpacked(page(plan, 1.0))
    assert data["verdict"] == "Nothing is stitched: it calls Python." and data["programs"][1]["kernels"]
    empty = dataclasses.replace(plan, hlo="", final_hlo=None)
    assert unpacked(page(empty, 1.0))["ops"]["name"] == []


def test_candidates_that_lost_and_stops_are_on_the_page() -> None:
    """What the page is for: why it is so, and what else could be."""
    data = unpacked(_page(normalisation()))
    (kernel,) = data["programs"][1]["kernels"]
    assert kernel["candidates"] and kernel["asked"] and kernel["latency"]["phases"]
    assert any(joined for *_, joined in data["stops"])


def test_time_runs_out_without_candidates_but_with_a_page() -> None:
    (kernel,) = unpacked(page(normalisation(), 0.0))["programs"][1]["kernels"]
    assert "candidates" not in kernel and kernel["latency"]
