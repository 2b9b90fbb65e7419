"""Every code block of the README, the tutorials and the page of SDS exchange runs as it stands and prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.examples import ROOT, blocks_of, run_page

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
WITH_SPARK = {"space-data.md"}
PLAIN = [*(page for page in TUTORIALS if page.name not in WITH_SPARK), ROOT / "docs/protocols/sds.md"]
KNOWN = {"sh", "python", "text"}


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: page.stem)
def test_a_page_works(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    run_page(page, folder)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "docs/tutorials/space-data.md"], ids=lambda page: page.stem
)
def test_a_page_that_ends_in_spark_works(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    run_page(page, folder, seconds=220.0)


@pytest.mark.parametrize("page", [ROOT / "README.md", *TUTORIALS], ids=lambda page: page.stem)
def test_no_block_is_of_a_kind_that_nobody_runs(page: Path) -> None:
    others = [block for block in blocks_of(page) if block.language not in KNOWN]
    drawings = [block for block in others if block.language == "" and "─▶" in block.code]
    assert [block.where for block in others if block not in drawings] == []


def test_there_is_a_tutorial_for_each_protocol() -> None:
    assert [page.stem for page in TUTORIALS] == [
        "block-availability", "ndn-group", "relay-federation", "space-data", "sync-object",
    ]  # fmt: skip
