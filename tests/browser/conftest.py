"""A real browser, headless, on a real node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.cli.conftest import PROGRAM, environment, up

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = '<img src=x onerror="window.hacked=true"><script>window.hacked=true</script>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module only: while Playwright runs, its event loop keeps asyncio in this thread to itself."""
    program = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose errors fail the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()
    assert problems == []


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A node that has kept an object with five versions, one with hostile content, and a refused frame."""
    import subprocess

    folder: Path = tmp_path_factory.mktemp("node")
    subprocess.run([*PROGRAM, "init"], cwd=folder, env=environment(), check=True, capture_output=True)
    with up(folder) as ready, httpx.Client(base_url=ready["url"]) as client:
        for number in range(5):
            body = {"uid": "thing", "topic": "things", "data": {"n": number, "pad": "x" * 200}}
            assert client.post("/api/v1/publish/sdsp", json=body).is_success
        hostile = {"uid": HOSTILE, "topic": HOSTILE, "data": {HOSTILE: HOSTILE}}
        assert client.post("/api/v1/publish/sdsp", json=hostile).is_success
        refused = client.post("/api/v1/publish/sdsp", json={"topic": "t", "frame": "{not json"})
        assert refused.status_code == 403
        yield ready
