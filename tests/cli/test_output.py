"""What people see of tables and of text that strangers wrote."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from syncline.cli import output
from syncline.cli.tail import _line
from syncline.core.errors import UsageError
from tests.cli.conftest import Run, up

HOSTILE = "\x1b]0;mine\x07\x9b2J\u202eevil\r"


def test_what_a_terminal_would_obey_is_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.visible("plain, ünïcode 軌道\tand\nlines") == "plain, ünïcode 軌道\tand\nlines"
    assert output.visible(HOSTILE) == r"\x1b]0;mine\x07\x9b2J\u202eevil\r"
    assert output.visible("half \ud800") == r"half \ud800"
    output.table(["name"], [[HOSTILE]])
    output.facts({"name": HOSTILE})
    assert capsys.readouterr().out.count(output.visible(HOSTILE)) == 2


def test_text_from_messages_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.visible("zwölf 🛰 [bold]") == "zwölf 🛰 [bold]"
    output.table(["a"], [[HOSTILE]])
    output.facts({"a": HOSTILE})
    output.problem(UsageError(f"two\nlines {HOSTILE}", hint=HOSTILE))
    record = {"received_at": "2026-01-01T00:00:00.000000Z", "protocol": "sdsp", "direction": "in", "verdict": "accept"}
    _line({**record, "reason": None, "topic": HOSTILE, "key": HOSTILE, "seq": None, "name": "n/e/1"})
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert not set("\x1b\x07\r\x9b\u202e") & set(text)
        assert "\\x1b]0;mine" in text
    assert len(shown.err.splitlines()) == 1


def test_numbers_stand_below_each_other_and_a_pipe_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(["table", "rows", "new"], [["a" * 150, "1,234", "+5"], ["b", "7", "+0"]])
    head, first, second = capsys.readouterr().out.splitlines()
    assert "a" * 150 in first
    assert head.index("rows") + 4 == first.index("1,234") + 5 == second.index("7") + 1


def test_titles_and_columns_keep_their_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(["a[b]"], [["c[d]"]], title="pip install 'syncline[dev]'")
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "pip install 'syncline[dev]'",
        "a[b]",
        "c[d]",
    ]


def test_a_row_too_wide_for_the_screen_is_shown_name_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "PIPE_WIDTH", 30)
    output.answer(["a", "b", "c", "d"], [[1, 2, 3, None]])
    assert capsys.readouterr().out.splitlines() == ["--- row 1", "a  1", "b  2", "c  3", "d  "]
    output.answer(["a"], [])
    assert "no rows" in capsys.readouterr().err


def test_tail_shows_a_hostile_name_without_obeying_it(run: Run, tmp_path: Path) -> None:
    assert run("init").returncode == 0
    with up(tmp_path, "--set", "node.protocols=sdsp") as ready:
        body = {"uid": "x", "topic": HOSTILE, "data": 1}
        assert httpx.post(f"{ready['url']}/api/v1/publish/sdsp", json=body).is_success
        shown = run("tail", "-e", "--node", ready["url"]).stdout
    assert output.visible(HOSTILE) in shown
    assert "\x1b" not in shown
