"""Every panel of the dashboard on the running demo: alive, and saying what the API says."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.spark]
Keep = Callable[[str], None]
PROTOCOLS = ("relay", "sds", "sdsp", "shrex", "svs")
PAGES = ("", "records", "peers", "objects", "objects/flight-log", "map", "tables", "tables/records")


@pytest.fixture
def api(demo: dict[str, Any]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=demo["url"]) as client:
        yield client


@pytest.fixture
def show(page: Page, demo: dict[str, Any]) -> Callable[[str], Page]:
    def show(hash: str) -> Page:
        page.goto(f"{demo['url']}/#/{hash}")
        return page

    return show


def cells(rows: Locator) -> list[list[str]]:
    """The text of every cell, read at one moment: the page draws its tables anew all the time."""
    found: list[list[str]] = rows.evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    return found


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_overview_shows_throughput_verdicts_and_how_far_the_lake_is_behind(
    show: Callable[[str], Page], api: httpx.Client, keep: Keep
) -> None:
    page = show("")
    legend = page.locator(".legend span:not(.sum)")
    expect(legend).to_have_count(5)
    assert [text.split()[0] for text in legend.all_inner_texts()] == list(PROTOCOLS)
    expect(page.get_by_role("img", name="throughput").locator("polygon")).to_have_count(5)
    before = api.get("/api/v1/status").json()["statistics"]["verdicts"]
    before_lag = api.get("/api/v1/lag/").json()
    page.wait_for_timeout(45_000 if os.environ.get("KEEP_IMAGES") else 6_000)  # a chart worth a picture
    table = page.get_by_role("region", name="verdicts with reasons")
    shown = {"/".join((row[0], row[1], row[4])): number(row[2]) for row in cells(table.locator("tbody tr"))}
    after = api.get("/api/v1/status").json()["statistics"]["verdicts"]
    assert set(before) <= set(shown) <= set(after)
    assert all(before[name] <= shown[name] for name in before)
    assert all(shown[name] <= after[name] for name in shown)
    assert any(name.startswith("sds/reject/") for name in shown)
    steps = page.get_by_role("region", name="From journal to lake").locator(".step b")
    kept, sealed, landed = map(number, steps.all_inner_texts())
    assert before_lag["sealed"] <= sealed <= kept
    assert 0 < landed <= kept <= api.get("/api/v1/lag/").json()["newest"]
    expect(page.locator("#behind")).to_contain_text("behind")
    keep("overview")


def test_the_stream_is_filtered_and_a_record_is_shown_as_bytes_meaning_and_verdict(
    show: Callable[[str], Page], api: httpx.Client, keep: Keep
) -> None:
    page = show("records")
    rows = page.locator("tbody tr")
    expect(rows.nth(30)).to_be_visible()
    first = rows.first.inner_text()
    expect(rows.first).not_to_have_text(first)  # alive
    keep("records")
    page.get_by_label("protocol").select_option("sds")
    page.get_by_label("verdict").select_option("reject")
    expect(page.locator("tbody .accept")).to_have_count(0)
    expect(rows.first).to_contain_text("sds")
    assert page.get_by_label("protocol").input_value() == "sds"
    page.get_by_role("button", name="Pause").click()
    assert {(row[1], row[3]) for row in cells(rows)} == {("sds", "reject")}
    forged = page.locator("tr", has_text="invalid_signature").first
    forged.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Record")).to_be_visible()
    epoch, lsn = page.url.rpartition("#/records/")[2].split("/")
    answer = api.get(f"/api/v1/records/{epoch}/{lsn}").json()
    expect(page.get_by_role("region", name="Why")).to_contain_text(answer["why"]["meaning"])
    assert json.loads(page.get_by_role("region", name="Decoded").locator("pre").inner_text()) == answer["decoded"]
    raw = base64.b64decode(answer["record"]["raw"])
    hex_lines = page.locator("pre.hex").inner_text().splitlines()
    assert bytes.fromhex("".join(line[8:56] for line in hex_lines)) == raw
    page.locator(".tied", has_text="GHOST").hover()
    assert page.evaluate("[...CSS.highlights.get('bytes')].map(String)") == ["47 48 4f 53 54", "GHOST"]
    keep("record")


def test_the_peers_page_draws_and_lists_everybody(show: Callable[[str], Page], api: httpx.Client, keep: Keep) -> None:
    page = show("peers")
    rows = page.get_by_role("region", name="peers").locator("tbody tr")
    expect(rows.nth(3)).to_be_visible()
    known = {(peer["protocol"], peer["peer"]) for peer in api.get("/api/v1/peers").json()["peers"]}
    pairs = "rows => rows.map((row) => [row.closest('.scroll').ariaLabel.split(' ')[0], row.cells[0].firstChild.title])"
    listed = set(map(tuple, rows.evaluate_all(pairs)))
    steady = {pair for pair in known if pair[0] in ("relay", "svs")}  # the misbehaving peer comes and goes
    assert steady <= listed
    expect(page.locator("svg text", has_text="amber")).to_be_visible()
    expect(page.locator("svg text", has_text="basalt")).to_have_count(3)  # known by its name on every network
    expect(page.locator("svg text", has_text="client")).to_be_visible()
    keep("peers")


def test_an_object_is_shown_at_every_moment_of_its_life(
    show: Callable[[str], Page], api: httpx.Client, keep: Keep
) -> None:
    page = show("objects")
    page.get_by_role("link", name="flight-log").click()
    slider = page.get_by_role("slider", name="serial")
    expect(page.get_by_text(", following")).to_be_visible()
    keep("object")
    slider.focus()
    slider.press("Home")
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    shown = page.get_by_role("region", name="Object").locator("pre")
    serial = int(slider.input_value())
    expect(shown).to_contain_text(f'"revision": {serial},')
    assert json.loads(shown.inner_text()) == api.get(f"/sdsp/flight-log?at={serial}").json()["value"]
    expect(page.get_by_role("region", name="What this serial changed")).to_contain_text(f"replace /revision = {serial}")


def test_the_map_puts_every_satellite_where_the_api_says(
    show: Callable[[str], Page], api: httpx.Client, keep: Keep
) -> None:
    page = show("map")
    dots = page.locator(".sat")
    expect(dots).to_have_count(24)
    page.get_by_role("button", name="DEMO-3B").click()
    expect(page.locator(".tracks polyline").first).to_be_attached()
    page.evaluate("scrollTo(0, 0)")
    keep("map")
    places = {each["name"]: each for each in api.get("/api/v1/satellites/").json()["satellites"]}
    dot = page.locator(".sat", has_text="DEMO-1A")
    x, y = map(float, re.findall(r"[\d.]+", dot.get_attribute("transform") or ""))
    there = places["DEMO-1A"]
    assert y == pytest.approx((90 - there["latitude"]) * 3, abs=6)
    across = abs(x - (there["longitude"] + 180) * 3)
    assert min(across, 1080 - across) < 24  # some seconds of flight, at most near a pole
    assert 400 < there["altitude"] < 700


def test_tables_show_their_rows_and_grow(show: Callable[[str], Page], api: httpx.Client, keep: Keep) -> None:
    page = show("tables")
    row = page.locator("tr", has=page.get_by_role("link", name="relay_messages", exact=True))
    expect(row).to_be_visible()
    shown = number(cells(row)[0][1])
    now = {each["name"]: each["rows"] for each in api.get("/api/v1/tables/").json()["tables"]}
    assert 0 < shown <= now["relay_messages"]
    expect(row.locator("td.number").first).not_to_have_text(f"{shown:,}", timeout=30_000)
    keep("tables")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", name="relay_messages")).to_be_visible()
    newest = page.get_by_role("region", name="rows").locator("tbody tr").first
    expect(newest).to_contain_text('"from":')
    keep("table")


def test_every_page_has_a_json_twin(show: Callable[[str], Page], api: httpx.Client) -> None:
    for hash in PAGES:
        page = show(hash)
        page.wait_for_timeout(200)
        answer = api.get("/" + (page.locator("#twin").get_attribute("href") or "none"))
        assert answer.is_success, hash
        assert json.loads(answer.text.splitlines()[0])


@pytest.mark.parametrize(("scheme", "width", "suffix"), [("dark", 1200, "dark"), ("light", 390, "phone")])
def test_it_looks_right_in_the_dark_and_on_a_phone(
    page: Page, show: Callable[[str], Page], keep: Keep, scheme: Any, width: int, suffix: str
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for hash in PAGES:
        show(hash)
        expect(page.locator("main section, main .card").first).to_be_visible()
        page.wait_for_timeout(5_000 if hash == "" else 1_500)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, hash
        if hash in ("", "records", "peers", "map"):
            keep(f"{hash or 'overview'}-{suffix}")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 21, 26)" if scheme == "dark" else "rgb(247, 248, 250)")


def test_everything_is_reached_by_keyboard(show: Callable[[str], Page]) -> None:
    page = show("")
    expect(page.locator(".legend span:not(.sum)")).to_have_count(5)
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.innerText || document.activeElement.id"))
    assert [text.strip() for text in reached] == [
        "Skip to content", "Syncline", "Overview", "Records", "Peers", "Objects", "Map", "Tables", "◐",
    ]  # fmt: skip
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
