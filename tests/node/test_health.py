from __future__ import annotations

from pathlib import Path

from syncline.core.settings import JournalSettings
from syncline.node.health import check_clock, check_disk
from syncline.testing.clock import FakeClock


def test_a_slow_disk_is_named(tmp_path: Path) -> None:
    [speed, _] = check_disk(tmp_path, JournalSettings(), slow_ms=0.0)
    assert (speed.check, speed.level) == ("disk", "warn")
    assert "SSD" in speed.fix


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    [_, room] = check_disk(tmp_path / "not" / "made" / "yet", JournalSettings(disk_free_rejects=2**62))
    assert (room.check, room.level) == ("space", "fail")


def test_an_address_that_tells_no_time_is_only_a_warning() -> None:
    [finding] = check_clock(["http://127.0.0.1:9/"], FakeClock())
    assert (finding.level, "node.clock_urls" in finding.fix) == ("warn", True)
