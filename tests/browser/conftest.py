"""A real browser, headless, on a real node."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.cli.conftest import PROGRAM, environment, up

expect.set_options(timeout=20_000)  # a busy machine is not a failure
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
LANDED = ("records", "rejected", "relay_messages", "sdsp_objects", "shrex_notifications", "headers", "svs_publications")
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
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The whole demo: three nodes, five protocols, a misbehaving peer, and tables that grow."""
    command = [*PROGRAM, "demo", "--json", "--folder", str(tmp_path_factory.mktemp("demo"))]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        ready: dict[str, Any] = json.loads(process.stdout.readline())
        for line in process.stdout:
            if all(json.loads(line)["tables"].get(name) for name in LANDED):
                break
        # What it goes on saying must be read, or it stops when the pipe is full.
        reading = threading.Thread(target=process.stdout.read, daemon=True)
        reading.start()
        yield {**ready, "url": ready["nodes"]["amber"]}
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
        reading.join(10)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def keep(page: Page, tmp_path: Path) -> Callable[[str], None]:
    """Take a picture of the page; `make images` keeps it for the documentation."""
    folder = IMAGES if os.environ.get("KEEP_IMAGES") else tmp_path

    def keep(name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}.png")

    return keep


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A node that has kept an object with five versions, one with hostile content, and a refused frame."""
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
