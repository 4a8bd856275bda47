"""The built site in a real browser, as files: every page fits, is searched and led through, and fetches nothing.

``make docs`` builds it in ``build/site``; where that is older than what it is made of, the tests build their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page.browser import Browser

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

ROOT = Path(__file__).resolve().parent.parent.parent
PHONE, DESK = 400, 1400
LOCAL = ("file:", "data:", "about:", "chrome:")
"""Where addresses begin that lead to no network."""


def newest(*paths: Path) -> float:
    files = [f for p in paths for f in (p.rglob("*") if p.is_dir() else (p,)) if f.is_file() and f.suffix != ".pyc"]
    return max(f.stat().st_mtime for f in files)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = ROOT / "build" / "site"
    parts = [ROOT / name for name in ("docs", "notebooks", "examples", "jax_stitch", "hlo_parser", "mkdocs.yml")]
    if (built / "index.html").exists() and (built / "index.html").stat().st_mtime >= newest(*parts, *ROOT.glob("*.md")):
        return built
    pytest.importorskip("mkdocs", reason="the site is built by MkDocs: make docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return folder


@pytest.fixture(scope="module")
def browser(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"), log_requests=True)
    yield found
    found.close()


def pages(site: Path) -> list[Path]:
    """All but the one for what is not found, which a server shows at any address."""
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def opened(browser: Browser, path: Path, width: int, dark: bool = False) -> None:
    if browser.driver.current_url.startswith("file:"):
        browser.js("localStorage.clear()")  # The theme keeps the colours of the first page.
        browser.driver.get("about:blank")
    browser.show(width, dark=dark)
    browser.driver.get(path.as_uri())
    browser.wait(lambda: browser.js("return document.readyState === 'complete'"), f"{path.name} to load")


OUTSIDE = """
const edge = document.documentElement.clientWidth;
const scrolls = (e) => e && (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement));
return [...document.querySelectorAll(".md-content *")]
  .filter((e) => e.getClientRects().length && e.getBoundingClientRect().right > edge + 1 && !scrolls(e.parentElement))
  .map((e) => e.tagName + " " + (e.textContent || "").slice(0, 60));
"""
FAINT = """
const light = (c) => {
  const [r, g, b] = c.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const over = (below, colour) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = `rgb(${below.join(",")})`;
  canvas.fillRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const behind = (e) => {
  const below = e.parentElement ? behind(e.parentElement) : [255, 255, 255];
  return over(below, getComputedStyle(e).backgroundColor);
};
const found = new Set();
const words = ["p", "td", "th", "li", "code", "h1", "h2", "pre span"].map((name) => `.md-content ${name}`).join();
for (const e of document.querySelectorAll(words)) {
  if (!e.textContent.trim() || !e.getClientRects().length) continue;
  const below = behind(e);
  const [ink, paper] = [light(over(below, getComputedStyle(e).color)), light(below)];
  const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  if (contrast < 2.5) found.add(`${contrast.toFixed(1)}: ${e.textContent.trim().slice(0, 40)}`);
}
return [...found];
"""
"""Words that hardly differ from what is behind them."""
LOST = """
return [...document.images].filter((i) => i.loading !== "lazy" && !(i.complete && i.naturalWidth)).map((i) => i.src);
"""
FOUND = "[...document.querySelectorAll('.md-search-result__link')]"


def test_every_page_fits_and_fetches_nothing(browser: Browser, site: Path) -> None:
    """A table or a drawing pushed the page sideways on a phone, a picture was lost, a script or a font came from
    elsewhere, or words cannot be read in the dark.
    """
    wrong: list[str] = []
    for path in pages(site):
        for width in (DESK, PHONE):
            for dark in (False, True):
                opened(browser, path, width, dark)
                where = f"{path.relative_to(site)} at {width}{' in the dark' if dark else ''}"
                scheme = browser.js("return document.body.dataset.mdColorScheme")
                faults = {
                    "scrolls sideways by": browser.overflow(),
                    "is outside of the window": browser.js(OUTSIDE),
                    "pictures are lost": browser.js(LOST),
                    "can hardly be read": browser.js(FAINT) if width == DESK else (),
                    "colours are": "" if scheme == ("slate" if dark else "default") else scheme,
                    "console": browser.errors(),
                    "fetched": [u for u in browser.requests() if not u.startswith(LOCAL)],
                }
                wrong += [f"{where}: {what} {found}" for what, found in faults.items() if found]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_search_finds_a_page(browser: Browser, site: Path, width: int) -> None:
    """Pages that are files have no workers, in which the theme searches."""
    opened(browser, site / "notebooks" / "cart_pole.html", width)
    browser.js("document.querySelector('[data-md-toggle=search]').click()")
    browser.wait(lambda: browser.js("return document.querySelector('.md-search__input').offsetWidth > 50"), "the field")
    browser.type(".md-search__input", "composition levels")
    browser.wait(lambda: browser.js(f"return {FOUND}.length"), "something to be found")
    assert any("composition.html" in link for link in browser.js(f"return {FOUND}.map((a) => a.href)"))
    assert browser.text(".md-search-result__meta")[0].isdigit()
    browser.js(f"{FOUND}.find((a) => a.href.includes('composition')).click()")
    browser.wait(lambda: "composition.html" in browser.driver.current_url, "the page that was found")
    assert browser.overflow() == 0 and not browser.errors()


def test_tabs_lead_to_each_section(browser: Browser, site: Path) -> None:
    opened(browser, site / "index.html", DESK)
    tabs = browser.js("return [...document.querySelectorAll('.md-tabs__link')].map((a) => a.textContent.trim())")
    assert len(tabs) == 7
    for n, tab in enumerate(tabs):
        browser.driver.find_elements("css selector", ".md-tabs__link")[n].click()
        browser.wait(lambda: browser.js("return document.readyState === 'complete'"), f"the section {tab}")
        active = browser.text(".md-tabs__item--active")
        assert active == tab and browser.js("return document.querySelector('.md-content h1').textContent")
        assert Path(browser.driver.current_url.removeprefix("file://").partition("#")[0]).is_file()


def test_the_menu_of_a_phone_leads_to_pages(browser: Browser, site: Path) -> None:
    """Its entries lay outside of the window, or beneath others, and could not be touched."""
    opened(browser, site / "index.html", PHONE)
    browser.click("label.md-header__button[for=__drawer]")
    left = "return document.querySelector('.md-sidebar--primary').getBoundingClientRect().left"
    browser.wait(lambda: browser.js(left) == 0, "the menu")
    entries = browser.driver.find_elements("css selector", ".md-nav--primary > .md-nav__list > .md-nav__item")
    next(e for e in entries if e.text.strip() == "Start").find_element("css selector", "label").click()
    links = browser.driver.find_elements("css selector", ".md-nav__link[href$='when.html']")
    browser.wait(lambda: any(a.is_displayed() and a.location["x"] >= 0 for a in links), "the section")
    next(a for a in links if a.is_displayed()).click()
    browser.wait(lambda: browser.driver.current_url.endswith("when.html"), "the page")
    assert browser.overflow() == 0
