from __future__ import annotations

import subprocess
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import HOSTILE
from tests.cli.conftest import PROGRAM, environment, up

pytestmark = pytest.mark.browser


def test_the_overview_shows_the_node_and_its_verdicts(page: Page, node: dict[str, Any]) -> None:
    page.goto(node["url"] + "/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_role("cell", name="malformed")).to_be_visible()
    expect(page.locator("dd", has_text="ready")).to_be_visible()
    expect(page.locator("footer")).to_contain_text(node["epoch"])


def test_a_record_is_inspected_from_the_stream_by_keyboard(page: Page, node: dict[str, Any]) -> None:
    page.goto(node["url"] + "/#/records/?verdict=reject")
    link = page.locator("tbody a").first
    expect(link).to_be_visible()
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("malformed: the bytes are not a message of this protocol")).to_be_visible()
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
            if token:
                asked.get_by_label("token").fill(token)
                asked.get_by_role("button").click()
            expect(asked).to_contain_text(answer)
        asked.get_by_label("token").fill("sesame")
        asked.get_by_role("button").click()
        expect(page.locator("dd", has_text="ready")).to_be_visible()
        assert page.evaluate("localStorage.length") == 0  # it lives in this tab only
        page.close()


def test_the_policy_lets_nothing_run_that_is_not_a_file_of_the_page(page: Page, node: dict[str, Any]) -> None:
    answer = page.goto(node["url"] + "/")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
