"""A headless browser that opens a page, where one is installed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """Chromium at a given size."""

    def __init__(self, profile: Path, log_requests: bool = False) -> None:
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        driver = shutil.which("chromedriver")
        if browser is None or driver is None:
            pytest.skip("no browser here: install chromium and chromium-driver to run the page's browser tests")
        webdriver = pytest.importorskip(
            "selenium.webdriver", reason="selenium drives the browser: pip install selenium"
        )
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for option in (*OPTIONS, f"--user-data-dir={profile}"):
            options.add_argument(option)
        logs = {"browser": "ALL"} | ({"performance": "ALL"} if log_requests else {})
        options.set_capability("goog:loggingPrefs", logs)
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))

    def open(self, path: Path, width: int = 1400, height: int = 900, address: str = "", dark: bool = False) -> None:
        """Opens a plan's page and waits until it has started."""
        self.show(width, height, dark)
        self.driver.get("about:blank")
        self.driver.get(path.as_uri() + address)
        self.wait(lambda: self.js("return Boolean(window.plan)"), "the page to start")

    def show(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Gives the window a size, and says what colours the user likes."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},  # no animation to wait for
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, is_done: Callable[[], Any], what: str, seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not is_done():
            assert time.monotonic() < end, f"waited {seconds:.0f} s for {what}; console: {self.errors()}"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def type(self, selector: str, text: str) -> None:
        self.driver.find_element("css selector", selector).send_keys(text)

    def press(self, key: str) -> None:
        """A key on the page itself."""
        self.js("document.activeElement.blur()")
        self.driver.find_element("css selector", "body").send_keys(key)

    def text(self, selector: str) -> str:
        return self.driver.find_element("css selector", selector).text

    def click_operation(self, name: str) -> None:
        """A click of the mouse on an operation's box in the graph."""
        at = self.js("return window.plan.placeOf(window.plan.data.ops.name.indexOf(arguments[0]))", name)
        assert at["inside"], f"{name} is not in view"
        for kind in ("mousePressed", "mouseReleased"):
            event = {"type": kind, "x": at["x"], "y": at["y"], "button": "left", "clickCount": 1}
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)

    def selected(self) -> Any:
        return self.js("return window.plan.state.selected")

    def errors(self) -> list[str]:
        """What the console has complained of since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last call, where they are logged."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def overflow(self) -> int:
        """Pixels that the page is wider than the window."""
        return self.js("return document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def close(self) -> None:
        self.driver.quit()
