"""Bad peers are weapons: they attack this machine, and nothing else."""

from __future__ import annotations

import pytest

from syncline.core.errors import UsageError
from syncline.testing.badpeers import PLANS, Target, run
from syncline.testing.badpeers.attack import is_loopback

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("address", "ours"),
    [
        ("/ip4/127.0.0.1/tcp/7071/p2p/12D3KooWxyz", True),
        ("/ip6/::1/tcp/7071", True),
        ("ws://127.0.0.1:7072/path", True),
        ("tcp://[::1]:6363", True),
        ("/ip4/192.0.2.1/tcp/7071/p2p/127.0.0.1", False),
        ("/dns4/127.0.0.1/tcp/1", False),
        ("ws://192.0.2.1/127.0.0.1", False),
        ("http://127.0.0.1.example/", False),
        ("http://127.0.0.1@192.0.2.1/", False),
        ("http://localhost/", False),
        ("http://[::1/", False),
    ],
)
def test_an_address_is_this_machines_if_its_number_is(address: str, ours: bool) -> None:
    assert is_loopback(address) is ours


async def test_one_address_elsewhere_is_enough_to_refuse() -> None:
    target = Target(relay="ws://127.0.0.1:7072", api="http://192.0.2.1:80")
    with pytest.raises(UsageError, match="this machine only"):
        await run(PLANS[0], target, 0.1)
