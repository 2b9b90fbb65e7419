from __future__ import annotations

from ipaddress import ip_address

import pytest

from syncline.core.errors import SettingsError
from syncline.networks.addresses import is_public, may_connect

REFUSED = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1",
    "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1",
    "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::127.0.0.1",
    "64:ff9b:1::10.0.0.1", "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1",
    "2002:7f00:1::", "2002:a00:1::1", "3fff::1", "fc00::1", "fd12:3456::1", "fe80::1", "fec0::1", "ff02::1",
    "fe80::1%eth0",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "172.32.0.1", "193.0.0.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::8.8.8.8",
          "::ffff:8.8.8.8", "2002:808:808::1"]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_an_address_that_is_not_public_is_refused(text: str) -> None:
    assert may_connect(text) is False


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_may_be_connected_to(text: str) -> None:
    assert may_connect(text) is True
    assert is_public(ip_address(text)) is True


def test_an_operator_can_allow_a_network_and_nothing_beside_it() -> None:
    allowed = ("127.0.0.1/32", "fd00::/8")
    assert [may_connect(text, allowed) for text in ("127.0.0.1", "127.0.0.2", "fd00::1", "fc00::1")] == [
        True,
        False,
        True,
        False,
    ]


def test_a_mapped_address_is_not_allowed_by_its_ipv4_network() -> None:
    assert may_connect("::ffff:127.0.0.1", ("127.0.0.0/8",)) is False


def test_a_network_that_is_none_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match="not a network"):
        may_connect("127.0.0.1", ("localhost",))
