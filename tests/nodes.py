"""A real node with its HTTP API in a thread of its own, for tests that talk to it from any event loop."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel

from syncline.core.keys import NodeKey
from syncline.core.ports import ProtocolPlugin
from syncline.core.settings import load
from syncline.node import api, serve
from syncline.node.node import Node, running


class NodeThread:
    """Runs on trio, as nodes do. Stopped and started again it keeps its folder and its port."""

    def __init__(self, folder: Path, plugins: Mapping[str, ProtocolPlugin], **flags: Any) -> None:
        self._file = folder / "syncline.toml"
        self._file.write_text("")
        NodeKey.generate().save(folder / "node.key")
        self._plugins = plugins
        self._flags = {"segments.seconds": 3600.0, **flags}
        self._port = 0
        self._thread: threading.Thread | None = None
        self.node: Node
        self.url = ""

    def start(self) -> NodeThread:
        ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(20)
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        if self._thread is not None:
            anyio.from_thread.run_sync(self._scope.cancel, token=self._token)
            self._thread.join(20)
            assert not self._thread.is_alive()
            self._thread = None

    def _run(self, ready: threading.Event) -> None:
        try:
            anyio.run(self._main, ready, backend="trio")
        except BaseException as error:
            self._failure = error
        finally:
            ready.set()

    async def _main(self, ready: threading.Event) -> None:
        sections = {name: plugin.settings for name, plugin in self._plugins.items()}
        flags = {"api.port": self._port, **self._flags}
        settings = load(file=self._file, environment={}, flags=flags, sections=sections)
        listener = serve.bind(settings.api)
        self._port = listener.getsockname()[1]
        self.url = serve.url_of(listener)
        self._token = anyio.lowlevel.current_token()
        with anyio.CancelScope() as self._scope:
            async with running(settings, plugins=self._plugins) as self.node, anyio.create_task_group() as tasks:
                await tasks.start(serve.serve, api.build(self.node), listener)
                ready.set()
                await anyio.sleep_forever()
