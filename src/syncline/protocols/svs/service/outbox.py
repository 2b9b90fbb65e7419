"""Publishing: numbers are given, packets are made and kept, and only then announced; what waits is kept in one go.

SVS-PS: segment, sign and encapsulate, provide the name mapping, increment the sequence number, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import anyio.lowlevel

from syncline.core.errors import ConflictError, DecodeError, RefusedError, UsageError
from syncline.core.limits import SVS_SEGMENT_BYTES
from syncline.core.ports import StateChange
from syncline.formats.ndn.names import Name
from syncline.protocols.svs.rules.trust import Signers
from syncline.protocols.svs.service.stores import Prepared, Store
from syncline.protocols.svs.service.wiring import Wiring
from syncline.protocols.svs.session import Session
from syncline.protocols.svs.wire.mapping import MappingEntry, decode_mapping, encode_mapping
from syncline.protocols.svs.wire.publication import encapsulate


class Request:
    """A publication that waits for its number."""

    def __init__(self, node: Name, name: Name, payload: bytes, extra: bytes, state: Sequence[StateChange]) -> None:
        self.node = node
        self.name = name
        self.payload = payload
        self.extra = extra
        self.state = state
        self.done = anyio.Event()
        self.seq = 0
        self.error: Exception | None = None


class Outbox:
    """The publications of one member, in the order they were asked for."""

    def __init__(
        self,
        group: Name,
        session: Session,
        wiring: Wiring,
        signers: Signers,
        store: Store,
        announce: Callable[[], None],
    ) -> None:
        self._group = group
        self._session = session
        self._wiring = wiring
        self._signers = signers
        self._store = store
        self._announce = announce
        self._queue: list[Request] = []
        self._busy = False

    async def publish(self, request: Request) -> int:
        """Return the number once the publication is kept and about to be announced."""
        self._queue.append(request)
        if self._busy:
            await request.done.wait()
        else:
            await self._empty()
        if request.error is not None:
            raise request.error
        return request.seq

    async def _empty(self) -> None:
        """Keep all that waits in one go. Whoever comes meanwhile waits for the next round."""
        self._busy = True
        try:
            with anyio.CancelScope(shield=True):  # a number that may have been kept must not be used again
                while self._queue:
                    batch, self._queue = self._queue, []
                    await self._publish_all(batch)
        finally:
            self._busy = False
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def _publish_all(self, batch: list[Request]) -> None:
        try:
            await self._keep(batch)
        except (RefusedError, ConflictError) as error:
            if len(batch) == 1:
                batch[0].error = error
            else:  # nothing was kept: whose fault it is shows when each stands alone
                for request in batch:
                    await self._publish_all([request])
        except Exception as error:
            for request in batch:
                request.error = request.error or error
        finally:
            for request in batch:
                request.done.set()

    async def _keep(self, batch: list[Request]) -> None:
        prepared = self._prepare(batch)
        await self._store.keep(prepared)
        now = anyio.current_time()
        for publication in prepared:
            self._wiring.shelve(publication)
            self._session.published(publication.node, publication.entry, now)
        self._announce()

    def _prepare(self, batch: list[Request]) -> list[Prepared]:
        """Number, segment, sign and encapsulate; what cannot be published takes no number."""
        prepared: list[Prepared] = []
        last: dict[Name, int] = {}
        for request in batch:
            node = request.node
            # SVS-PS: the sequence number is the next available one of the publisher.
            seq = last.get(node, self._session.last(node)) + 1
            entry = MappingEntry(seq, request.name, request.extra)
            try:
                _check_entry(node, entry)
                packets = encapsulate(
                    node,
                    self._group,
                    seq,
                    request.name,
                    request.payload,
                    inner=self._signers.inner,
                    outer=self._signers.outer,
                )
            except UsageError as error:
                request.error = error
                continue
            request.seq = last[node] = seq
            mapping = self._wiring.mapping_data(node, seq, seq, [entry])
            prepared.append(Prepared(node, seq, packets, entry, mapping, request.state))
        return prepared


def _check_entry(node: Name, entry: MappingEntry) -> None:
    """Refuse what others could not read: it would spoil the answers it is part of."""
    encoded = encode_mapping(node, [entry])
    try:
        decode_mapping(encoded)
    except DecodeError as error:
        raise UsageError("the name or its further blocks cannot be read", hint=str(error)) from None
    if len(encoded) > SVS_SEGMENT_BYTES:
        raise UsageError("the name is too long for a mapping", hint=f"{len(encoded)} bytes with the node's name")
