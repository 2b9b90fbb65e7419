"""Over 400 named inputs, each of which breaks one requirement or limit of one protocol and must be refused for one reason.

Ours are judged by `tests/campaigns/test_bad_inputs.py`. To try them on an implementation in any language, have them
written to files, with an index that says what each is:

    python -m syncline.testing.badinputs FOLDER
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from syncline.testing.badinputs import relay, sds, sdsp, shrex, svs
from syncline.testing.badinputs.case import Bad

__all__ = ["ROOMS", "Bad", "cases", "write"]
ROOMS: Final[Mapping[str, Callable[[], Iterator[Bad]]]] = {
    "relay": relay.cases, "sds": sds.cases, "sdsp": sdsp.cases, "shrex": shrex.cases, "svs": svs.cases,
}  # fmt: skip


def cases(protocol: str | None = None) -> list[Bad]:
    """All of them, or those of one protocol."""
    return [case for name, room in ROOMS.items() if protocol in (None, name) for case in room()]


def write(folder: Path, chosen: Iterable[Bad]) -> int:
    """Write those that are bytes to files, and `index.json` beside them; returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    index: list[dict[str, str]] = []
    for case in chosen:
        if case.raw is None:
            continue
        file = f"{case.protocol}-{len(index):03}.bin"
        (folder / file).write_bytes(case.raw)
        index.append(
            {
                "file": file,
                "protocol": case.protocol,
                "name": case.name,
                "outcome": case.outcome.value,
                "reason": case.reason.value,
            }
        )
    (folder / "index.json").write_bytes(msgspec.json.format(msgspec.json.encode(index)))
    return len(index)
