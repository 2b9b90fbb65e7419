from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from syncline.core.keys import NodeKey
from syncline.core.settings import JournalSettings, Settings, load
from syncline.journal import Journal
from syncline.journal.database import connect
from syncline.journal.inspect import inspect
from syncline.journal.mark import Mark
from syncline.node.health import check_clock, check_disk, check_journal, check_ports, doors
from syncline.node.plugins import protocol_sections
from syncline.testing.clock import FakeClock
from tests.journal.conftest import arrival


def test_a_slow_disk_is_named(tmp_path: Path) -> None:
    [speed, _] = check_disk(tmp_path, JournalSettings(), slow_ms=0.0)
    assert (speed.check, speed.level) == ("disk", "warn")
    assert "SSD" in speed.fix


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    [_, room] = check_disk(tmp_path / "not" / "made" / "yet", JournalSettings(disk_free_rejects=2**62))
    assert (room.check, room.level) == ("space", "fail")


def test_a_folder_that_cannot_be_written_to_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("syncline.node.health.tempfile.TemporaryFile", refuse)  # root may write everywhere
    [finding] = check_disk(tmp_path, JournalSettings())
    assert (finding.level, finding.detail) == ("fail", f"{tmp_path} cannot be written to: Permission denied")
    assert "node.data" in finding.fix


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://[", "nonsense", ""])
def test_an_address_that_tells_no_time_is_only_a_warning(url: str) -> None:
    [finding] = check_clock([url], FakeClock())
    assert (finding.level, "node.clock_urls" in finding.fix) == ("warn", True)


def test_a_clock_compared_with_nobodys_is_not_called_right() -> None:
    [finding] = check_clock([], FakeClock())
    assert (finding.level, "syncline doctor --clock URL" in finding.fix) == ("warn", True)


def settings(**flags: Any) -> Settings:
    """Settings of a node whose protocols take free ports, but for what `flags` says."""
    sections = protocol_sections()
    ports = [
        f"{name}.{field}" for name, kind in sections.items() for field in kind.__struct_fields__ if "port" in field
    ]
    defaults = {**dict.fromkeys(["api.port", *ports], 0), "libp2p.listen": []}
    return load(environment={}, flags={**defaults, **flags}, sections=sections)


@pytest.mark.parametrize(
    ("setting", "kind"),
    [("api.port", "tcp"), ("relay.port", "tcp"), ("svs.udp_port", "udp"), ("libp2p.listen", "tcp")],
)
def test_every_port_of_a_node_is_looked_at(setting: str, kind: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == "tcp":
            taken.listen()
        port = taken.getsockname()[1]
        value = [f"/ip4/127.0.0.1/tcp/{port}"] if setting == "libp2p.listen" else port
        [finding] = check_ports(settings(**{setting: value}), protocol_sections())
    assert finding.level == "fail"
    assert finding.detail == f"{setting} 127.0.0.1:{port}/{kind}: Address already in use"
    free = "libp2p.listen=/ip4/127.0.0.1/tcp/0" if setting == "libp2p.listen" else f"{setting}=0"
    assert finding.fix == f"stop what listens there, or run with --set {free}"


def test_ports_of_protocols_that_are_not_spoken_do_not_matter() -> None:
    flags = {"api.port": 7, "relay.port": 8, "svs.tcp_port": -1, "libp2p.listen": ["/ip6/::1/tcp/9"]}
    assert [(door.setting, door.port) for door in doors(settings(**flags), ["sdsp", "svs"])] == [("api.port", 7)]
    assert [(door.setting, door.host, door.port) for door in doors(settings(**flags), ["shrex", "relay"])] == [
        ("api.port", "127.0.0.1", 7),
        ("libp2p.listen", "::1", 9),
        ("relay.port", "127.0.0.1", 8),
    ]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A key, and its journal of one record."""
    key = NodeKey.generate()
    key.save(tmp_path / "node.key")
    journal = Journal.open(tmp_path / "journal.db", node=key.peer_id, clock=FakeClock())
    journal.append_sync([arrival(b"a")])
    journal.close()
    return tmp_path


def found(home: Path) -> tuple[str, str]:
    finding = check_journal(home / "journal.db", home / "node.key")
    assert finding.level == "ok" or finding.fix
    return finding.level, finding.detail


def test_a_sound_journal_is_shown_in_figures(home: Path, tmp_path: Path) -> None:
    assert found(home)[0] == "ok"
    assert found(home)[1].endswith("1 records")
    assert check_journal(home / "none" / "journal.db", home / "node.key").detail == "none yet"


def test_a_journal_that_is_gone_or_cut_short_is_damage(home: Path) -> None:
    file = home / "journal.db"
    Mark(file).write(inspect(file).epoch, 5, 0)
    assert found(home) == ("fail", "it ends at record 1, but had come to record 5")
    file.unlink()
    assert found(home) == ("fail", f"the journal is gone, but had come to record 5 [{file}]")


def test_a_journal_in_pieces_or_of_another_node_or_version_is_named(home: Path) -> None:
    file, owner = home / "journal.db", NodeKey.load(home / "node.key").peer_id
    (home / "node.key").unlink()
    NodeKey.generate().save(home / "node.key")
    assert found(home) == ("fail", f"it belongs to node {owner}")
    (home / "journal.db.recovered-20260101T000000Z").touch()
    assert found(home) == ("fail", f"a recovery of this journal was cut short [{file}]")
    (home / "journal.db.recovered-20260101T000000Z").unlink()
    connection = connect(file, write=True)
    connection.execute("UPDATE about SET version = 9")
    connection.close()
    assert found(home) == ("fail", f"the journal has version 9, this program knows version 2 [{file}]")


def test_a_damaged_page_is_named(home: Path) -> None:
    file = home / "journal.db"
    data = bytearray(file.read_bytes())
    for page in range(4096, len(data), 4096):  # whatever is on it, one is enough
        data[page + 2048] ^= 1
        file.write_bytes(data)
        level, detail = found(home)
        assert (level, "page" in detail) == ("fail", True), page
        data[page + 2048] ^= 1
    file.write_bytes(data)
    assert found(home)[0] == "ok"


def test_pages_that_there_was_no_time_to_read_are_told_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.journal.inspect._STEPS", 1)
    monkeypatch.setattr("syncline.node.health.PAGES_SECONDS", -1.0)
    level, detail = found(home)
    assert level == "ok"
    assert detail.endswith("1 records; too large to read every page here, as `syncline journal verify` does")
