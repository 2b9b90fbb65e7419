"""`syncline pub svs` and `syncline tail` against a running node."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run, up

FREE_PORTS = ["--set", "svs.tcp_port=0", "--set", "svs.udp_port=-1", "--set", "svs.websocket_port=-1"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in as an installed package shows it, whatever this environment was installed from."""
    metadata = tmp_path / "site" / "svs_entry-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: svs-entry\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[syncline.protocols]\nsvs = syncline.protocols.svs.plugin:plugin\n")
    folders = [str(metadata.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))


@pytest.mark.usefixtures("installed")
def test_a_publication_is_sent_and_seen_by_tail(run: Run, tmp_path: Path) -> None:
    run("init", "home")
    (tmp_path / "content").write_bytes(b"hello\xff")
    flags = [*FREE_PORTS, "--set", "svs.groups=/room", "--set", "svs.nodes=/me", "--set", "node.protocols=svs"]
    with up(tmp_path / "home", *flags) as ready:
        sent = run("pub", "svs", "/chat/hello", "content", "--node", ready["url"], "--json")
        assert json.loads(sent.stdout) == {"group": "/room", "node": "/me", "seq": "1", "name": "/chat/hello"}
        again = run("pub", "svs", "/chat/again", "content", "--group", "/room", "--as", "/me", "--node", ready["url"])
        assert again.stdout == "/me  2\n"
        refused = run("pub", "svs", "/x", "content", "--group", "/other", "--node", ready["url"])
        assert refused.returncode == 2
        assert "which group?" in refused.stderr
        seen = run("tail", "-e", "--kind", "outer", "--node", ready["url"], "--json")
        lines = [json.loads(line) for line in seen.stdout.splitlines()]
        assert [(line["key"], line["seq"], line["direction"]) for line in lines] == [
            ("/chat/hello", "1", "out"),
            ("/chat/again", "2", "out"),
        ]


def test_a_missing_file_is_named(run: Run) -> None:
    result = run("pub", "svs", "/x", "nowhere")
    assert result.returncode == 2
    assert "nowhere" in result.stderr
