"""Real servers for the transports: NATS from its wheel, and nodes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.protocols.sdsp.service import PLUGIN
from tests.nodes import NodeThread
from tests.ports import free_port

NATS_SERVER = Path(sys.executable).parent / "nats-server"


class NatsServer:
    """A nats-server with JetStream in a folder of its own; it can be stopped and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        ports = self._folder / "ports"
        ports.mkdir(exist_ok=True)
        for old in ports.glob("*.ports"):
            old.unlink()
        log = self._folder / "log"
        where = ["-a", "127.0.0.1", "-p", str(self.port), "--ports_file_dir", str(ports), "-l", str(log)]
        self._process = subprocess.Popen([str(NATS_SERVER), *where, "-js", "-sd", str(self._folder / "data")])
        deadline = time.monotonic() + 20
        while not (found := list(ports.glob("*.ports"))) or not found[0].read_text().strip():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"nats-server does not start: {log.read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def sdsp_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    node = NodeThread(tmp_path_factory.mktemp("node"), {"sdsp": PLUGIN}).start()
    yield node
    node.stop()
