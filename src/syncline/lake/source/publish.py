"""`df.writeStream.format("syncline")`: publishes every row through a node.

A row is a request as `POST /api/v1/publish/{protocol}` takes it: each column a field, null for absent; or one text column
`value` with the whole JSON. Its idempotency key is made of the query, the batch and the row itself, so a task or batch that
Spark runs again, in whatever order and division, publishes nothing twice. Equal rows of one batch are one message.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec
import structlog
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import Row, StructType

from syncline.core import limits
from syncline.core.errors import RefusedError, SynclineError, UsageError
from syncline.core.retry import Backoff
from syncline.core.verdict import Reason
from syncline.lake.source.options import addresses, choice, client, number
from syncline.networks.node_client import NodeClient

KEY_COLUMN: Final = "idempotency_key"  # takes the place of the key that is made from the row
VALUE_COLUMN: Final = "value"
log = structlog.get_logger("syncline.lake")


class Published(WriterCommitMessage):
    """What one task did."""

    def __init__(self) -> None:
        self.published = 0
        self.repeated = 0  # the node had them from an earlier attempt
        self.refused = 0


class Publisher(DataSourceStreamWriter):
    """Runs on executors; a task publishes its rows one after the other."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        [self._address] = addresses(options, several=False)
        self._protocol = options.get("protocol", "")
        if not self._protocol:
            raise UsageError("no protocol is named", hint='say .option("protocol", "sds")')
        self._on_refusal = choice(options, "onrefusal", "fail", "skip")
        self._patience = number(options, "patience", limits.PUBLISH_PATIENCE_SECONDS, 0)
        self._whole = set(schema.fieldNames()) - {KEY_COLUMN} == {VALUE_COLUMN}

    def write(self, iterator: Iterator[Row]) -> Published:
        batch = _batch_name()
        done = Published()
        with client(self._address, self._options) as node:
            for row in iterator:
                self._publish(node, row, batch, done)
        return done

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        parts = [message for message in messages if message is not None]
        counts = {name: sum(getattr(part, name) for part in parts) for name in ("published", "repeated", "refused")}
        log.info("publish.batch", batch=batchId, **counts)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing to take back: what was published stays, and the next attempt knows it by its keys."""

    def _publish(self, node: NodeClient, row: Row, batch: str, done: Published) -> None:
        try:
            request, key = self._request(row)
            body = msgspec.json.encode(request, order="sorted")
            name = key or f"{batch}/{sha256(body).hexdigest()}"
            answer = self._patiently(node, request, name)
        except SynclineError as error:
            if self._on_refusal == "fail" or _is_worth_waiting_for(error):
                raise
            log.warning("publish.refused", protocol=self._protocol, error=str(error))
            done.refused += 1
            return
        if answer.get("replayed"):
            done.repeated += 1
        else:
            done.published += 1

    def _request(self, row: Row) -> tuple[dict[str, Any], str | None]:
        fields = row.asDict(recursive=True)
        key = fields.pop(KEY_COLUMN, None)
        if not self._whole:
            return {name: _json(value) for name, value in fields.items() if value is not None}, key
        try:
            return msgspec.json.decode(fields[VALUE_COLUMN] or "", type=dict[str, Any]), key
        except msgspec.DecodeError as error:
            raise UsageError(f"a value is not a JSON object: {error}") from None

    def _patiently(self, node: NodeClient, request: dict[str, Any], key: str) -> dict[str, Any]:
        """Publish, waiting while the node is away or has too much to do."""
        deadline = time.monotonic() + self._patience
        for pause in Backoff(longest=5.0).spans():
            try:
                found: dict[str, Any] = node.post(
                    f"/api/v1/publish/{self._protocol}", request, {"idempotency-key": key}
                )
                return found
            except SynclineError as error:
                if not _is_worth_waiting_for(error) or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
        raise AssertionError("spans never end")


def _is_worth_waiting_for(error: SynclineError) -> bool:
    return error.retry or (isinstance(error, RefusedError) and error.reason is Reason.RATE_LIMITED)


def _batch_name() -> str:
    """Query and batch, which a restarted query finds again in its checkpoint."""
    context = TaskContext.get()
    query = context and context.getLocalProperty("sql.streaming.queryId")
    number = context and context.getLocalProperty("streaming.sql.batchId")
    if not query or number is None:
        raise UsageError("only a streaming query publishes", hint="use df.writeStream")
    return f"spark/{query}/{number}"


def _json(value: Any) -> Any:
    """A value as JSON takes it; bytes as base64, which is how every protocol here wants them."""
    if isinstance(value, dict):
        return {name: _json(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_json(inner) for inner in value]
    return bytes(value) if isinstance(value, bytearray) else value
