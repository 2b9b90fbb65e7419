from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import HOSTILE
from tests.cli.conftest import PROGRAM, environment, up

pytestmark = pytest.mark.browser


def test_the_overview_shows_the_node_and_its_verdicts(page: Page, node: dict[str, Any]) -> None:
    page.goto(node["url"] + "/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_role("cell", name="the bytes are not a message of this protocol")).to_be_visible()
    expect(page.locator("dd", has_text="ready")).to_be_visible()
    expect(page.locator("footer")).to_contain_text(node["epoch"])


def test_a_record_is_inspected_from_the_stream_by_keyboard(page: Page, node: dict[str, Any]) -> None:
    page.goto(node["url"] + "/#/records/?verdict=reject")
    link = page.locator("tbody a").first
    expect(link).to_be_visible()
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("malformed: the bytes are not a message of this protocol.")).to_be_visible()
    expect(page.locator("pre").last).to_contain_text("{not json")


def test_an_object_is_shown_at_any_serial(page: Page, node: dict[str, Any]) -> None:
    page.goto(node["url"] + "/#/objects")
    page.get_by_role("link", name="thing", exact=True).click()
    slider = page.get_by_role("slider", name="serial")
    expect(page.locator("pre").first).to_contain_text('"n": 4')
    slider.focus()
    slider.press("Home")
    expect(page.locator("pre").first).to_contain_text('"n": 0')


def test_what_a_stranger_wrote_is_shown_as_text_and_never_run(page: Page, node: dict[str, Any]) -> None:
    for hash in ("#/", "#/records", "#/objects", "#/peers", "#/map"):
        page.goto(node["url"] + "/" + hash)
        page.wait_for_timeout(700)
    page.get_by_role("link", name="Objects").click()
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize("uid", ["a/b", "?x=1#y", "100%", "__proto__", "軌道 1"])
def test_an_object_of_any_name_is_reached(page: Page, node: dict[str, Any], uid: str) -> None:
    with httpx.Client(base_url=node["url"]) as client:
        body = {"uid": uid, "topic": "names", "data": {"named": uid, "constructor": 1}}
        assert client.post("/api/v1/publish/sdsp", json=body).is_success
    page.goto(node["url"] + "/#/objects")
    page.get_by_role("link", name=uid, exact=True).click()
    expect(page.get_by_role("region", name="Object").locator("pre")).to_contain_text(f'"named": "{uid}"')


def test_a_text_is_shown_line_by_line(page: Page, node: dict[str, Any]) -> None:
    with httpx.Client(base_url=node["url"]) as client:
        body = {"uid": "letter", "topic": "texts", "kind": "text", "data": "first line\nsecond <b>line</b>"}
        assert client.post("/api/v1/publish/sdsp", json=body).is_success
    page.goto(node["url"] + "/#/objects/letter")
    shown = page.get_by_role("region", name="Object").locator("pre")
    expect(shown).to_contain_text("second")
    assert shown.inner_text() == "first line\nsecond <b>line</b>"


def test_an_address_that_names_no_page_leads_to_the_first(page: Page, node: dict[str, Any]) -> None:
    for hash in ("#/nonsense", "#/constructor"):
        page.goto(node["url"] + "/" + hash)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(page.locator("nav a[aria-current]")).to_have_text("Overview")


def test_tables_that_are_not_there_yet_say_how_they_come(page: Page, node: dict[str, Any]) -> None:
    page.goto(node["url"] + "/#/tables")
    expect(page.get_by_text("nothing has landed yet: run `syncline lake run`")).to_be_visible()


def test_a_phone_needs_no_sideways_scrolling(page: Page, node: dict[str, Any]) -> None:
    page.set_viewport_size({"width": 375, "height": 740})
    for hash in ("#/", "#/records", "#/objects", "#/peers", "#/map", "#/tables"):
        page.goto(node["url"] + "/" + hash)
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, hash


def test_a_node_that_is_gone_is_said_to_be_gone(browser: Browser, node: dict[str, Any]) -> None:
    page = browser.new_page()
    page.goto(node["url"] + "/")
    expect(page.locator("dd", has_text="ready")).to_be_visible()
    page.route("**/api/**", lambda route: route.abort())
    expect(page.get_by_role("alert")).to_have_text("The node does not answer. Is it running?")
    page.unroute("**/api/**")
    expect(page.get_by_role("alert")).to_be_hidden(timeout=10_000)
    page.close()


def test_a_node_with_a_token_asks_for_it_and_nothing_else_opens(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("guarded")
    subprocess.run([*PROGRAM, "init"], cwd=folder, env=environment(), check=True, capture_output=True)
    with up(folder, "--set", "api.token=sesame") as ready:
        page = browser.new_page()
        page.goto(ready["url"] + "/")
        asked = page.get_by_role("dialog")
        for token, answer in (("", "asks for its API token"), ("wrong", "refused that token")):
            page.keyboard.press("Escape")
            page.keyboard.press("Escape")  # a browser lets a second one through
            if token:
                asked.get_by_label("token").fill(token)
                asked.get_by_role("button").click()
            expect(asked).to_contain_text(answer)
        asked.get_by_label("token").fill("sesame")
        asked.get_by_role("button").click()
        expect(page.locator("dd", has_text="ready")).to_be_visible()
        assert page.evaluate("localStorage.length") == 0  # it lives in this tab only
        page.get_by_role("link", name="this page as JSON").click()  # a link alone would carry no token
        page.wait_for_url(re.compile("^blob:"))
        assert json.loads(page.locator("body").inner_text())["state"] == "ready"
        page.close()


def test_the_policy_lets_nothing_run_that_is_not_a_file_of_the_page(page: Page, node: dict[str, Any]) -> None:
    answer = page.goto(node["url"] + "/")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_table_that_draws_itself_anew_leaves_the_keyboard_where_it_is(page: Page, node: dict[str, Any]) -> None:
    page.goto(node["url"] + "/")
    link = page.get_by_role("link", name="malformed")
    link.focus()
    before = page.locator("dt", has_text="running").evaluate("each => each.nextSibling.innerText")
    expect(page.locator("dt", has_text="running").locator("xpath=following-sibling::dd[1]")).not_to_have_text(before)
    assert page.evaluate("document.activeElement.innerText") == "malformed"
    page.keyboard.press("Enter")
    expect(page.get_by_label("reason")).to_have_value("malformed")
    expect(page.locator("tbody tr").first).to_contain_text("malformed")
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("tbody tr").nth(6)).to_be_visible()


def test_what_was_on_the_page_stays_to_be_read_while_the_node_is_gone(browser: Browser, node: dict[str, Any]) -> None:
    page = browser.new_page()
    page.goto(node["url"] + "/#/objects/thing")
    expect(page.locator("pre").first).to_contain_text('"n": 4')
    page.route("**/sdsp/**", lambda route: route.abort())
    with httpx.Client(base_url=node["url"]) as client:  # ends the request that waits for news
        body = {"uid": "thing", "topic": "things", "data": {"n": 4, "pad": "x" * 200, "more": True}}
        assert client.post("/api/v1/publish/sdsp", json=body).is_success
    expect(page.get_by_role("alert")).to_have_text("The node does not answer. Is it running?")
    page.wait_for_timeout(2_500)  # more than one try
    expect(page.locator("pre").first).to_contain_text('"n": 4')
    page.unroute("**/sdsp/**")
    expect(page.locator("pre").first).to_contain_text('"more": true')
    expect(page.get_by_role("alert")).to_be_hidden()
    page.close()


def test_a_value_and_the_bytes_that_spell_it_light_up_together(page: Page, node: dict[str, Any]) -> None:
    page.goto(node["url"] + "/#/records/?verdict=accept&key=thing")
    page.locator("tbody a").first.click()
    value = page.locator(".tied", has_text='"thing"').first
    value.focus()
    lit = "[...CSS.highlights.get('bytes')].map(String)"
    assert page.evaluate(lit) == ["74 68 69 6e 67", "thing"]
    page.locator("pre.hex").hover(position={"x": 80, "y": 18})  # some byte of the first line
    page.mouse.move(0, 0)
    assert page.evaluate(lit) == []


def test_an_object_says_when_each_serial_came_and_leads_to_its_record(page: Page, node: dict[str, Any]) -> None:
    page.goto(node["url"] + "/#/objects/thing")
    expect(page.get_by_text(", following")).to_be_visible()
    page.get_by_role("button", name="earlier").click()
    expect(page.get_by_text(", following")).to_be_hidden()
    slider = page.get_by_role("slider", name="serial")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^serial \d+ of \d+, \d\d:\d\d:\d\d\.\d{3}$"))
    serial = slider.input_value()
    page.get_by_role("region", name="State").get_by_role("link").click()
    expect(page.get_by_role("region", name="Kept").locator("dt:text('seq') + dd")).to_have_text(serial)
    page.go_back()
    page.get_by_role("button", name="Follow").click()
    expect(page.get_by_text(", following")).to_be_visible()


def test_a_lake_that_cannot_be_read_is_named_and_hides_nothing_else(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("nolake")
    subprocess.run([*PROGRAM, "init"], cwd=folder, env=environment(), check=True, capture_output=True)
    log = folder / "data" / "lake" / "records" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("no log of a table\n")
    with up(folder, "--set", "node.name=quarry") as ready:
        page = browser.new_page()
        page.goto(ready["url"] + "/")
        expect(page.locator("dd", has_text="ready")).to_be_visible()
        expect(page.get_by_role("region", name="From journal to lake")).to_contain_text("The lake cannot be read")
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page).to_have_title("Overview · quarry · Syncline")
        page.goto(ready["url"] + "/#/tables")
        expect(page.get_by_role("alert")).to_contain_text("records")
        page.close()


def test_a_node_that_does_not_speak_sdsp_says_so_where_objects_would_be(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("silent")
    subprocess.run([*PROGRAM, "init"], cwd=folder, env=environment(), check=True, capture_output=True)
    with up(folder, "--set", "node.protocols=relay") as ready:
        page = browser.new_page()
        page.goto(ready["url"] + "/#/objects")
        expect(page.get_by_role("alert")).to_have_text("This node does not speak SDSP: see the setting node.protocols.")
        for hash, answer in (
            ("#/map", "No orbit mean-elements (OMM) have been accepted yet."),
            ("#/peers", "No peers yet"),
        ):
            page.goto(ready["url"] + "/" + hash)
            expect(page.get_by_text(answer)).to_be_visible()
            expect(page.get_by_role("alert")).to_be_hidden()
        page.close()
