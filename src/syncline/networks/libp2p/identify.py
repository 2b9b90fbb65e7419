"""The identify message: what a peer says about itself when asked. Pure; the host asks and answers.

Claims of a peer (addresses, agent, protocols) are only hints: bounded here, believed nowhere.
"""

from __future__ import annotations

from typing import Final

import msgspec

from syncline.formats.protobuf import bytes_field, expect_bytes, expect_text, fields

PROTOCOL: Final = "/ipfs/id/1.0.0"
PUSH: Final = "/ipfs/id/push/1.0.0"
MESSAGE_MAX: Final = 8_192
PROTOCOLS_MAX: Final = 256
ADDRESSES_MAX: Final = 64
TEXT_MAX: Final = 256


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What one peer says."""

    public_key: bytes = b""  # protobuf form
    addresses: tuple[bytes, ...] = ()  # binary multiaddrs
    protocols: tuple[str, ...] = ()
    observed: bytes = b""  # the address it sees us at
    protocol_version: str = ""
    agent: str = ""


def encode(identity: Identity) -> bytes:
    return b"".join(
        (
            bytes_field(1, identity.public_key),
            *(bytes_field(2, address) for address in identity.addresses),
            *(bytes_field(3, protocol.encode()) for protocol in identity.protocols),
            bytes_field(4, identity.observed) if identity.observed else b"",
            bytes_field(5, identity.protocol_version.encode()),
            bytes_field(6, identity.agent.encode()),
        )
    )


def decode(data: bytes) -> Identity:
    key = observed = b""
    version = agent = ""
    addresses: list[bytes] = []
    protocols: list[str] = []
    for number, wire, value in fields(data):
        match number:
            case 1:
                key = expect_bytes(value, wire, "publicKey")
            case 2:
                addresses.append(expect_bytes(value, wire, "listenAddrs"))
            case 3:
                protocols.append(expect_text(value, wire, "protocols")[:TEXT_MAX])
            case 4:
                observed = expect_bytes(value, wire, "observedAddr")
            case 5:
                version = expect_text(value, wire, "protocolVersion")[:TEXT_MAX]
            case 6:
                agent = expect_text(value, wire, "agentVersion")[:TEXT_MAX]
            case _:
                pass  # signed peer records and what may come
    return Identity(
        public_key=key,
        addresses=tuple(addresses[:ADDRESSES_MAX]),
        protocols=tuple(protocols[:PROTOCOLS_MAX]),
        observed=observed,
        protocol_version=version,
        agent=agent,
    )
