"""Payloads for tests of transports, which look at no more of them than uid, serial and ver."""

from __future__ import annotations

import json
from typing import Any


def full(uid: str, serial: int, data: Any = None) -> bytes:
    return json.dumps({"uid": uid, "serial": serial, "data": {"n": serial} if data is None else data}).encode()


def delta(uid: str, serial: int, ver: int) -> bytes:
    return json.dumps({"uid": uid, "serial": serial, "ver": ver, "alg": "X-mp", "delta": {"n": serial}}).encode()


def serials(payloads: Any) -> list[int]:
    return [json.loads(payload)["serial"] for payload in payloads]
