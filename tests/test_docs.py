"""What is not documented fails here: settings, reasons, commands and dependencies."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.docs import PAGES

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("name", "page"), PAGES.items())
def test_a_generated_page_says_what_the_code_says(name: str, page: Callable[[], str]) -> None:
    assert (ROOT / "docs" / name).read_text() == page(), "run `make docs`"


def test_every_command_and_option_has_a_meaning() -> None:
    page = PAGES["commands.md"]()
    assert re.findall(r"^\| `[^`]+` \|\s+\|$", page, re.MULTILINE) == []
    for section in page.split("\n## ")[1:]:
        heading, _, rest = section.partition("\n")
        assert len(rest.strip().splitlines()[0]) > 10, f"{heading} has no help"


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {re.split(r"[\[<>=!~ ]", each)[0] for each in wanted} - {"syncline"}
    page = (ROOT / "docs" / "dependencies.md").read_text()
    assert sorted(name for name in names if f"| {name} |" not in page) == []


def test_the_lock_pins_exactly_and_names_no_address() -> None:
    lines = [line.partition("  #")[0] for line in (ROOT / "requirements.lock").read_text().splitlines()]
    pins = [line for line in lines if line and not line.startswith("#")]
    assert len(pins) > 50
    assert [line for line in pins if not re.fullmatch(r"[a-z0-9.-]+==[0-9A-Za-z.+!]+", line)] == []


PAGES_WITH_LINKS = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)


@pytest.mark.parametrize("name", PAGES_WITH_LINKS)
def test_every_link_to_a_file_leads_somewhere(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("name", PAGES_WITH_LINKS)
def test_every_link_into_a_page_meets_a_heading(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\(([^)#:\s]*\.md)?#([^)\s]+)\)", page.read_text())
    assert [
        (file, anchor) for file, anchor in links if anchor not in _anchors(page.parent / file if file else page)
    ] == []


def _anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
        ahead += [(page.parent / link).resolve() for link in links]
    names = ("benchmarks-remarks.md", "reliability-remarks.md")  # parts of the pages they remark on
    parts = {ROOT / "docs" / name for name in names}
    assert {ROOT / name for name in PAGES_WITH_LINKS} - reached == parts
