"""The section [shrex] of the settings: where headers come from, which of them is trusted, and how peers are treated."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from syncline.core import limits
from syncline.core.errors import DecodeError, SettingsError
from syncline.protocols.shrex.rules.headers import Trusted
from syncline.protocols.shrex.session.peers import PeerLimits
from syncline.protocols.shrex.wire.notification import parse_hash, topic_of


class ShrexSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """ShrEx/Sub on the node's libp2p host."""

    headers: Annotated[
        str,
        Meta(
            description="where block headers come from: file:PATH (JSON lines), http(s)://NODE (JSON-RPC), memory: (none)"
        ),
    ] = "memory:"
    headers_token: Annotated[str, Meta(description="bearer token of the header source; secret")] = ""
    poll_seconds: Annotated[float, Meta(gt=0, description="how often the source is asked for a new head")] = 2.0
    trusted_height: Annotated[
        int,
        Meta(
            ge=0,
            le=2**63 - 1,
            description="height of the header that is trusted; 0: the first one the source gives. A chain that was kept "
            "before and does not hold the trusted header is begun anew",
        ),
    ] = 0
    trusted_hash: Annotated[str, Meta(description="its hash, as hex; required with trusted_height")] = ""
    profile: Annotated[
        Literal["spec", "celestia"],
        Meta(description="spec: topic /eds-sub/0.0.1; celestia: NETWORK/eds-sub/v0.2.0, as that network uses"),
    ] = "spec"
    network: Annotated[str, Meta(description="network id in the topic of the celestia profile")] = "celestia"
    relay: Annotated[
        bool, Meta(description="forward accepted notifications; light nodes of the real network do not")
    ] = True
    validation_seconds: Annotated[float, Meta(gt=0, description="how long a notification waits for its header")] = (
        limits.SHREX_VALIDATION_SECONDS
    )
    cooldown_seconds: Annotated[
        float, Meta(ge=0, description="how long a peer that could not serve is not asked again")
    ] = limits.SHREX_COOLDOWN_SECONDS
    blacklist_peers: Annotated[
        bool, Meta(description="disconnect for good who announces wrong hashes or serves wrong data")
    ] = False
    refused_roots: Annotated[
        list[str], Meta(description="data roots, as hex, to refuse beside that of an empty block")
    ] = []

    @property
    def topic(self) -> str:
        return topic_of(self.profile, self.network)

    @property
    def trusted(self) -> Trusted | None:
        if not self.trusted_height:
            if self.trusted_hash:
                raise SettingsError("shrex.trusted_hash needs shrex.trusted_height")
            return None
        return Trusted(self.trusted_height, _hash(self.trusted_hash, "shrex.trusted_hash"))

    @property
    def roots(self) -> frozenset[bytes]:
        return frozenset(_hash(text, "shrex.refused_roots") for text in self.refused_roots)

    @property
    def peer_limits(self) -> PeerLimits:
        return PeerLimits(cooldown_seconds=self.cooldown_seconds, blacklist_peers=self.blacklist_peers)


def _hash(text: str, name: str) -> bytes:
    try:
        return parse_hash(text, name)
    except DecodeError as error:
        raise SettingsError(str(error)) from None
