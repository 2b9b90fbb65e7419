"""Callers of the HTTP API: addresses nobody may fetch from, and other sites."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import anyio
import httpx

from syncline.testing.badpeers.attack import Attack

URIS: Final = (
    "http://169.254.169.254/latest/meta-data/", "http://[::ffff:127.0.0.1]/", "http://localhost:7070/api/v1/status",
    "file:///etc/passwd", "gopher://127.0.0.1:6379/", "http://0/", "http://2130706433/",
)  # fmt: skip


async def ssrf_frames(attack: Attack) -> None:
    """SDSP frames whose object and history lie at addresses nobody may fetch from here."""
    async with httpx.AsyncClient(base_url=attack.target.api, timeout=5.0) as client:
        while attack.going():
            uri, number = URIS[attack.sent % len(URIS)], attack.sent
            frame = {"uid": f"bad-{number}", "serial": 3, "ver": 1, "alg": "jp", "delta": [], "historyUri": uri}
            if number % 2:
                frame = {"uid": f"bad-{number}", "serial": 0, "dataUri": uri}
            with suppress(httpx.HTTPError):
                answer = await client.post("/api/v1/publish/sdsp", json={"frame": frame})
                attack.refused += answer.status_code >= 400
            attack.sent += 1
            await anyio.sleep(0.01)


async def foreign_origins(attack: Attack) -> None:
    """Requests as a page of another site, or a rebound name, would make them."""
    headers = ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Host": "127.0.0.1.evil.example"})
    paths = ("/api/v1/publish/relay", "/api/v1/publish/../../etc/passwd", "/api/v1/records/%2e%2e/%2e%2e")
    async with httpx.AsyncClient(base_url=attack.target.api, timeout=5.0) as client:
        while attack.going():
            number = attack.sent
            with suppress(httpx.HTTPError):
                answer = await client.post(paths[number % 3], headers=headers[number // 3 % 3], content=b"{}")
                attack.refused += answer.status_code >= 400
            attack.sent += 1
            await anyio.sleep(0.005)
