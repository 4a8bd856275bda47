"""One browser for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.page.browser import Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
