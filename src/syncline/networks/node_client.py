"""A small client of a node's HTTP API, for whoever talks to a running node: commands, and Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import httpx
import msgspec

from syncline.core import errors
from syncline.core.settings import Settings
from syncline.core.verdict import Reason

_KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}


class NodeClient:
    """One node, by its address and token."""

    def __init__(self, url: str, token: str = "") -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=httpx.Timeout(10.0, read=90.0))

    @classmethod
    def of(cls, settings: Settings, url: str | None = None) -> NodeClient:
        """The node named by `url`, or the one these settings describe."""
        api = settings.api
        host = f"[{api.host}]" if ":" in api.host else api.host
        return cls(url or f"http://{host}:{api.port}", api.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.close()

    def get(
        self, path: str, parameters: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        given = {name: value for name, value in (parameters or {}).items() if value is not None}
        return self._ask("GET", path, params=given, headers=dict(headers or {}))

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Any:
        content = msgspec.json.encode(body)
        return self._ask("POST", path, content=content, headers=dict(headers or {})).json()

    def records(self, parameters: Mapping[str, Any], *, last: int | None, follow: bool) -> Iterator[dict[str, Any]]:
        """Records in order: from the newest `last` ones (or the start), and on for ever if `follow`."""
        first = self.get("/api/v1/records", {**parameters, "last": last, "after": 0 if last is None else None})
        page = first
        while True:
            lines = [line for line in page.text.splitlines() if line]
            yield from (msgspec.json.decode(line) for line in lines)
            if not follow and not lines:
                return
            cursor = {"after": page.headers["syncline-next"], "epoch": page.headers["syncline-epoch"]}
            page = self.get("/api/v1/records", {**parameters, **cursor, "wait": 30 if follow else None})

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise errors.UnreachableError(
                f"no node answers at {self.url}: {error}", hint="start one with `syncline up`, or name it with --node"
            ) from None
        if answer.is_success:
            return answer
        raise _error(answer)


def _error(answer: httpx.Response) -> errors.SynclineError:
    try:
        told = answer.json()["error"]
        kind = _KINDS.get(told["type"], errors.SynclineError)
        extra = {"reason": Reason(told["reason"])} if "reason" in told else {}
        found: errors.SynclineError = kind(told["message"], hint=told.get("hint", ""), **extra)
    except (ValueError, KeyError, TypeError):
        return errors.SynclineError(f"the node answered {answer.status_code}")
    if answer.status_code == 401:
        found.hint = "set SYNCLINE_API_TOKEN to the node's api.token"
    return found
