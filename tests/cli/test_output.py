from __future__ import annotations

import pytest

from syncline.cli import output
from syncline.cli.tail import _line
from syncline.core.errors import UsageError

HOSTILE = "x\x1b]0;owned\x07\x1b[2Jy\u202e\r"


def test_text_from_messages_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.plain(HOSTILE) == "x\\x1b]0;owned\\x07\\x1b[2Jy\\u202e\\r"
    assert output.plain("zwölf 🛰 [bold]") == "zwölf 🛰 [bold]"
    output.table(["a"], [[HOSTILE]])
    output.facts({"a": HOSTILE})
    output.problem(UsageError(f"two\nlines {HOSTILE}", hint=HOSTILE))
    record = {"received_at": "2026-01-01T00:00:00.000000Z", "protocol": "sdsp", "direction": "in", "verdict": "accept"}
    _line({**record, "reason": None, "topic": HOSTILE, "key": HOSTILE, "seq": None, "name": "n/e/1"})
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert not set("\x1b\x07\r\u202e") & set(text)
        assert "\\x1b]0;owned" in text
    assert len(shown.err.splitlines()) == 1
