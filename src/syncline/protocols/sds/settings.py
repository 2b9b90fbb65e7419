"""The section [sds] of the settings: which network and schemas, what peers may do, how old a message may be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from syncline.core import limits
from syncline.core.errors import SettingsError
from syncline.core.limits import HOUR

if TYPE_CHECKING:  # commands that only look at settings need not load the rest
    from syncline.protocols.sds.rules import Context
    from syncline.protocols.sds.session.quotas import Quotas
    from syncline.protocols.sds.session.responder import Terms


class SdsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signed space data over libp2p."""

    network: Annotated[
        str, Meta(description="name of the network: topics are /spacedatanetwork/{network}/{schema}")
    ] = "mainnet"
    schemas: Annotated[list[str] | None, Meta(description="schemas to take part in; absent: all 29")] = None
    memory_hours: Annotated[
        float,
        Meta(gt=0, description="messages older than this are ignored; keep it within journal.retention_hours"),
    ] = 168.0
    publish_rate: Annotated[
        float,
        Meta(ge=0, description="publishes a second, per publisher on gossip and per peer on streams; 0: no limit"),
    ] = float(limits.SDS_PUBLISH_RATE)
    query_rate: Annotated[float, Meta(ge=0, description="queries a second per peer; 0: no limit")] = float(
        limits.SDS_QUERY_RATE
    )
    subscriptions: Annotated[int, Meta(ge=0, description="active subscriptions per peer")] = limits.SDS_SUBSCRIPTIONS
    query_seconds: Annotated[float, Meta(gt=0, description="a query that takes longer is answered QUERY_TIMEOUT")] = (
        limits.SDS_QUERY_SECONDS
    )
    sync_seconds: Annotated[
        float, Meta(ge=0, description="how often to ask connected peers for what we missed; 0: only when told")
    ] = 60.0

    def names(self) -> frozenset[str]:
        from syncline.protocols.sds.catalogue import NAMES, plain_name

        names = NAMES if self.schemas is None else [plain_name(name) for name in self.schemas]
        unknown = sorted(set(names) - set(NAMES))
        if unknown:
            raise SettingsError(
                f"sds.schemas names no schema: {', '.join(unknown)}", hint=f"there are {', '.join(NAMES)}"
            )
        return frozenset(names)

    def context(self) -> Context:
        from syncline.protocols.sds.rules import Context

        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", self.network):
            raise SettingsError("sds.network is 1 to 64 letters, digits, dots, dashes and underscores")
        return Context(network=self.network, schemas=self.names(), memory=int(self.memory_hours * HOUR))

    def quotas(self) -> Quotas:
        from syncline.protocols.sds.session.quotas import Quotas

        return Quotas(publish_rate=self.publish_rate, query_rate=self.query_rate, subscriptions=self.subscriptions)

    def terms(self) -> Terms:
        from syncline.protocols.sds.session.responder import Terms

        return Terms(network=self.network, schemas=self.names(), query_seconds=self.query_seconds)
