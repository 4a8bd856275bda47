"""The page in a real browser: it starts at once, its panes lead to one another, and it fits every window."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.workloads import bert, environments
from jax_stitch.inspect.page.html import page
from jax_stitch.inspect.report.plan import Plan
from tests.page.browser import Browser
from tests.page.plans import flax_step, layered, normalisation, of_workload
from tests.page.test_html import EVIL

pytestmark = pytest.mark.xdist_group("browser")

WIDTHS = (400, 700, 1000, 1400, 2000)


@functools.cache
def cart_pole() -> Plan:
    """A loop of 10,000 steps in one kernel."""
    return of_workload(environments.WORKLOADS, "cart_pole")


def twelve_layers(folder: Path) -> Plan:
    """5,040 operations."""
    return layered(folder)


PLANS: dict[str, Callable[[Path], Plan]] = {
    "normalisation": lambda _: normalisation(),
    "cart_pole": lambda _: cart_pole(),
    "flax_step": lambda _: flax_step(),
    "twelve_layers": twelve_layers,
}


@pytest.fixture(params=PLANS, scope="module")
def written(request: pytest.FixtureRequest, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page in a file. (It asks for the browser first: without one nothing is planned.)"""
    folder = tmp_path_factory.mktemp(request.param)
    path = folder / "plan.html"
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        path.write_text(page(PLANS[request.param](folder), 3.0), encoding="utf-8")
    return path


@pytest.fixture
def small(browser: Browser, tmp_path: Path) -> Path:
    path = tmp_path / "plan.html"
    path.write_text(page(layered(tmp_path, layers=4, parts=9), 1.0), encoding="utf-8")
    return path


def test_it_is_painted_within_two_seconds_and_complains_of_nothing(browser: Browser, written: Path) -> None:
    """A page that unpacks for seconds, or whose script fails half-way, is no page."""
    browser.open(written)
    entry = "performance.getEntriesByName('first-contentful-paint')[0]"
    browser.wait(lambda: browser.js(f"return Boolean({entry})"), "the first paint")  # told a little later
    painted = browser.js(f"return {entry}.startTime")
    started = browser.js("return window.plan.painted")
    assert painted < 2000 and started < 2000, (painted, started)
    assert written.stat().st_size < 1_500_000
    assert browser.errors() == []


def test_it_fits_every_width(browser: Browser, written: Path) -> None:
    """Sideways scrolling on a phone made the old page unusable."""
    for width in WIDTHS:
        browser.open(written, width=width)
        assert browser.overflow() <= 0, width
        for tab in browser.driver.find_elements("css selector", "#lower-tabs button"):
            tab.click()
            assert browser.overflow() <= 0, (width, tab.text)
        browser.press("j")
        browser.js("document.querySelector('#tabs [data-pane=detail]').click()")
        inside = "const d = document.getElementById('detail'); return d.scrollWidth - d.clientWidth"
        assert browser.js(inside) <= 0, f"the detail of a kernel of a long name, {width}"
    assert browser.errors() == []


def test_from_a_line_to_its_kernel_to_the_graph_and_back(browser: Browser, written: Path) -> None:
    """The three panes are one thing: what is chosen in one is chosen in all."""
    browser.open(written)
    # The line that costs most.
    rows = browser.driver.find_elements("css selector", ".code-line.counts[data-line]")
    row = max(rows, key=lambda r: float((r.find_element("css selector", ".share").text or "0").strip("<%")))
    line = row.get_attribute("data-line")
    browser.js("arguments[0].scrollIntoView({block: 'center'}); arguments[0].click()", row)
    assert browser.selected()["kind"] == "line" and browser.text("#detail h2") == line
    # Its kernel, by the link in the detail.
    browser.js("[...document.querySelectorAll('#detail a')].find(a => a.hash.startsWith('#kernel=')).click()")
    chosen = browser.selected()
    assert (chosen["kind"], chosen["program"]) == ("kernel", 1)
    kernel = browser.js("return window.plan.data.programs[1].kernels[arguments[0]]", chosen["id"])
    assert browser.text("#detail h2") == kernel["title"]
    # One of its boxes in the graph: the click chooses the operation in it, or what it is folded with.
    names = browser.js("return arguments[0].map(i => window.plan.data.ops.name[i])", kernel["members"])
    inside = [n for n in names if browser.js(_PLACE, n)["inside"]]
    assert inside, "the graph has moved to the kernel"
    browser.click_operation(inside[0])
    assert browser.selected()["kind"] in ("op", "group")
    # And back to the line, by the detail's own links.
    browser.js("document.querySelector('#detail [data-line], #detail a[href^=\"#line\"]').click()")
    assert browser.selected()["kind"] == "line"
    assert browser.driver.find_elements("css selector", ".code-line.chosen")
    assert browser.errors() == []


_PLACE = "return window.plan.placeOf(window.plan.data.ops.name.indexOf(arguments[0]))"


def test_before_and_after_are_two_colourings_of_the_same_boxes(browser: Browser, written: Path) -> None:
    browser.open(written)
    name = browser.js("return window.plan.data.ops.name[window.plan.data.programs[0].of.findIndex(k => k >= 0)]")
    place, after = browser.js(_PLACE, name), _canvas(browser)
    browser.click("#colouring button:first-child")
    assert browser.js("return window.plan.state.program") == 0
    assert browser.js(_PLACE, name) == place, "the boxes stay where they are"
    browser.wait(lambda: _canvas(browser) != after, "other colours")
    assert browser.errors() == []


def _canvas(browser: Browser) -> str:
    return browser.js("return document.getElementById('canvas').toDataURL()")


def test_search_finds_kernels_lines_and_operations(browser: Browser, small: Path) -> None:
    browser.open(small)
    browser.type("#search", "Layer_2 Part_1")
    assert "Layer_2/Part_1" in browser.text("#found li")
    browser.type("#search", "\ue007")
    assert browser.selected()["kind"] in ("kernel", "op") and "Layer_2" in browser.text("#detail")
    browser.js("document.getElementById('search').value = ''")
    browser.type("#search", "tanh(x)")
    assert browser.text("#found li").startswith("model.py:4")
    browser.type("#search", " nowhere at all")
    assert browser.text("#found") == "nothing of that name"
    assert browser.errors() == []


def test_an_address_leads_back(browser: Browser, small: Path) -> None:
    """Deep links: what one sees can be sent to somebody else."""
    for address, kind, heading in (
        ("#kernel=stitch_3~2", "kernel", "Layer_1/Part_3"),
        ("#xla=fusion.2.4", "kernel", "Layer_2/Part_0"),
        ("#op=tanh.1002002", "op", "tanh.1002002"),
        ("#line=model.py%3A4", "line", "model.py:4"),
    ):
        browser.open(small, address=address)
        assert browser.selected()["kind"] == kind, address
        assert heading in browser.text("#detail h2"), address
        assert browser.js("return location.hash").startswith(address), address
    browser.open(small, address="#kernel=no_such_kernel")
    assert browser.selected() is None and browser.errors() == []


def test_back_and_forward(browser: Browser, small: Path) -> None:
    browser.open(small, address="#op=tanh.1002002")
    browser.js("window.plan.select({kind: 'kernel', program: 1, id: 2})")
    browser.driver.back()
    browser.wait(lambda: (browser.selected() or {}).get("kind") == "op", "the operation again")
    browser.driver.forward()
    browser.wait(lambda: (browser.selected() or {}).get("kind") == "kernel", "the kernel again")


def test_keys(browser: Browser, small: Path) -> None:
    browser.open(small)
    browser.press("j")
    first = browser.selected()
    browser.press("j")
    assert first["kind"] == "kernel" and browser.selected() != first
    browser.press("k")
    assert browser.selected() == first
    browser.press("b")
    assert browser.js("return window.plan.state.program") == 0
    browser.press("t")
    assert browser.js("return window.plan.state.measure") == "bytes"
    folded = browser.js("return window.plan.viewOf().name")
    browser.press("f")
    assert browser.js("return window.plan.viewOf().name") != folded
    browser.press("/")
    assert browser.js("return document.activeElement.id") == "search"
    browser.press("\ue00c")
    assert browser.selected() is None
    browser.press("?")
    assert browser.js("return document.getElementById('help').open")
    assert browser.errors() == []


def test_tables_are_sorted_by_a_click(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.click("#tab-xla")
    for column in range(len(browser.driver.find_elements("css selector", "#lower th"))):
        script = "document.querySelectorAll('#lower th button')[arguments[0]].click()"
        seen = []
        for _ in range(2):
            browser.js(script, column)
            seen.append(browser.js("return document.querySelectorAll('#lower th')[arguments[0]].ariaSort", column))
        assert sorted(seen) == ["ascending", "descending"]
    browser.js("[...document.querySelectorAll('#lower th button')].find(b => b.textContent === 'bytes').click()")
    browser.js("document.querySelector('#lower tr.row').click()")
    chosen, most = (
        browser.selected(),
        browser.js("return Math.max(...window.plan.data.programs[0].kernels.map(k => k.bytes))"),
    )
    assert browser.js("return window.plan.data.programs[0].kernels[arguments[0]].bytes", chosen["id"]) == most
    assert browser.errors() == []


def test_the_roofline_leads_to_kernels(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.click("#tab-roofline")
    points = browser.js("return [...document.querySelectorAll('#roofline [data-kernel]')].map(p => p.dataset.program)")
    assert {"0", "1"} <= set(points), "both programs"
    browser.js("document.querySelector('#roofline [data-program=\"1\"]').dispatchEvent(new MouseEvent('click'))")
    assert browser.selected()["kind"] == "kernel" and browser.errors() == []


def test_repeated_layers_are_folded_and_unfolded(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    path.write_text(page(layered(tmp_path), 1.0), encoding="utf-8")
    browser.open(path)
    assert browser.js("return window.plan.viewOf().times").count(12) > 400
    browser.click("#fold")
    assert browser.js("return window.plan.viewOf().x.length") == len(browser.js("return window.plan.data.ops.name"))
    browser.js("window.plan.select({kind: 'kernel', program: 1, id: 100})")
    assert browser.js("return window.plan.placeOf(window.plan.data.programs[1].kernels[100].members[0]).inside")
    assert browser.errors() == []


def test_on_a_phone_one_pane_at_a_time(browser: Browser, small: Path) -> None:
    browser.open(small, width=400, height=800)
    shown = "return ['source', 'graph', 'detail'].filter(p => document.getElementById(p).offsetHeight > 0)"
    assert browser.js(shown) == ["source"]
    browser.click("#tabs [data-pane=graph]")
    assert browser.js(shown) == ["graph"]
    browser.wait(lambda: browser.js("return document.getElementById('canvas').width") > 300, "the graph's canvas")
    browser.click("#tabs [data-pane=detail]")
    assert browser.js(shown) == ["detail"] and browser.overflow() <= 0
    assert browser.errors() == []


def test_it_is_dark_where_the_reader_wants_it_dark(browser: Browser, small: Path) -> None:
    colours = []
    for dark in (False, True):
        browser.open(small, dark=dark)
        colours.append(browser.js("return getComputedStyle(document.body).backgroundColor"))
    light, night = (sum(map(int, c.removeprefix("rgb(").removesuffix(")").split(","))) for c in colours)
    assert light > 600 and night < 200


def test_a_program_that_means_harm_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    """Text of the program shown as markup would run as a script in the reader's browser."""
    scope = "<img src=x onerror=document.title='harm'>"
    plan = layered(tmp_path, layers=2, parts=6, scope=scope)
    kernels = tuple(dataclasses.replace(k, name=EVIL + str(n), schedule=EVIL) for n, k in enumerate(plan.kernels))
    path = tmp_path / "plan.html"
    path.write_text(
        page(dataclasses.replace(plan, function=EVIL, notes=(EVIL,), kernels=kernels), 1.0), encoding="utf-8"
    )
    browser.open(path)
    for number in range(2):
        browser.js("window.plan.select({kind: 'kernel', program: 1, id: arguments[0]})", number)
        browser.js("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.type("#search", "onerror")
    for tab in browser.driver.find_elements("css selector", "#lower-tabs button"):
        tab.click()
    assert EVIL in browser.text("#title")
    assert browser.driver.title == f"{EVIL} on h200"
    assert browser.js("return document.querySelectorAll('img').length") == 0
    assert browser.errors() == []


def test_two_plans_on_one_page(browser: Browser, tmp_path: Path) -> None:
    """Two planners: the same boxes under the kernels of each, and a table of what differs."""
    found = normalisation().diff(normalisation("span"))
    path = found.to_html(tmp_path / "diff.html")
    browser.open(path)
    assert browser.text("#colouring").split() == ["jax.jit", "beam", "span"]
    assert "split" in browser.text("#lower")
    browser.click("#colouring button:nth-child(3)")
    browser.press("j")
    assert browser.selected()["program"] == 2
    address = browser.js("return location.hash")
    browser.open(path, address=address)
    assert browser.selected()["program"] == 2
    assert browser.overflow() <= 0 and browser.errors() == []


@pytest.mark.slow
def test_a_real_model_of_twelve_layers(browser: Browser, tmp_path: Path) -> None:
    """BERT with dropout and AdamW, 13,600 operations: minutes to plan, two seconds to open."""
    plan: Any = of_workload(bert.WORKLOADS, "bert_training", (4, 128, 256, 12, 4, 8192))
    path = plan.to_html(tmp_path / "plan.html")
    assert path.stat().st_size < 1_500_000
    browser.open(path)
    assert browser.js("return window.plan.painted") < 2000
    assert 12 in browser.js("return window.plan.data.groups.times")
    assert browser.overflow() <= 0 and browser.errors() == []
