"""The OpenAPI document of a node's HTTP API: written beside the routes, kept in docs/openapi.json, served to programs.

Routes of protocols are in it whether or not a node speaks them; one that does not answers 404.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from syncline.core.limits import API_PAGE_RECORDS
from syncline.core.verdict import Reason
from syncline.node.api import ARROW, NDJSON

Part = dict[str, Any]
PATH: Final = "/api/v1/openapi.json"
REASONS: Final = "/api/v1/reasons"
TEXT: Final[Part] = {"type": "string"}
WHOLE: Final[Part] = {"type": "integer"}
NUMBER: Final[Part] = {"type": "number"}
FLAG: Final[Part] = {"type": "boolean"}
OBJECT: Final[Part] = {"type": "object"}
SERIAL_MAX: Final = 2**53 - 1
VERDICT: Final[Part] = {"type": "string", "enum": ["accept", "reject", "ignore"]}


def document() -> Part:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Syncline node",
            "version": version("syncline"),
            "summary": "What a node keeps, whom it talks to, and how to publish through it",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"token": []}],
        "paths": {**_core(), **_pages(), **_protocols()},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "the setting api.token"}},
            "schemas": {"Error": _error(), "Record": _record()},
            "responses": {"Error": _response("why not", {"$ref": "#/components/schemas/Error"})},
        },
    }


def reasons() -> Part:
    """The closed list of reasons, as a page shows it."""
    return {"reasons": [{"reason": each.value, "about": each.about, "meaning": each.doc} for each in Reason]}


def _core() -> dict[str, Part]:
    filters = [
        _query(name, TEXT, f"only records with this {name}")
        for name in ("protocol", "topic", "kind", "key", "publisher", "verdict", "reason")
    ] + [_query("seq", _from(0, 2**63 - 1), "only records with this serial, sequence number or height")]
    page = [
        _query("after", _from(0, 2**63 - 1), "start behind this lsn"),
        _query("limit", _from(0, API_PAGE_RECORDS), "at most so many records"),
        _query("last", _from(0, API_PAGE_RECORDS), "instead of after: the newest so many"),
        _query("wait", {"type": "number", "minimum": 0, "maximum": 60}, "seconds to hold the request for a record"),
        _query("epoch", TEXT, "the journal the caller knows; another is a 409"),
    ]
    records = _get(
        "A page of records after an lsn", {"type": "string"}, parameters=[*page, *filters], errors=(400, 409)
    )
    records["responses"]["200"]["content"] = {NDJSON: {"schema": TEXT}, ARROW: {"schema": {}}}
    records["responses"]["200"]["headers"] = {
        "syncline-epoch": {"schema": TEXT, "description": "the journal's epoch"},
        "syncline-next": {"schema": TEXT, "description": "the `after` of the next request"},
    }
    status = _struct(
        node=TEXT, name=TEXT, epoch=TEXT, newest=WHOLE, state={"enum": ["starting", "ready", "stopping", "stopped"]},
        now=WHOLE, started_at=WHOLE, protocols=_list(TEXT), addresses=_list(TEXT), statistics=OBJECT,
    )  # fmt: skip
    one = _struct(record={"$ref": "#/components/schemas/Record"}, decoded=OBJECT, why=OBJECT)
    metrics = _get("Prometheus metrics", TEXT)
    metrics["responses"]["200"]["content"] = {"text/plain": {"schema": TEXT}}
    return {
        "/api/v1/status": {"get": _get("Who the node is and how it is", status)},
        "/api/v1/records": {"get": records},
        "/api/v1/records/{epoch}/{lsn}": {
            "get": _get(
                "One record: bytes, decoded, and why it got its verdict",
                one,
                parameters=[
                    _path("epoch", {"type": "string", "pattern": "^[0-9a-f]{16}$"}),
                    _path("lsn", _from(0, 2**62)),
                ],
                errors=(404,),
            )
        },
        "/api/v1/peers": {"get": _get("Who each protocol talks to", _struct(peers=_list(OBJECT)))},
        "/api/v1/publish/{protocol}": {"post": _publish()},
        REASONS: {
            "get": _get(
                "What each reason means", _struct(reasons=_list(_struct(reason=TEXT, about=TEXT, meaning=TEXT)))
            )
        },
        PATH: {"get": _get("This document", OBJECT)},
        "/metrics": {"get": metrics},
    }


def _publish() -> Part:
    return {
        "summary": "Send one message; the protocol's page describes the body",
        "parameters": [
            _path("protocol", {"enum": ["relay", "sds", "sdsp", "shrex", "svs"]}),
            {
                "name": "idempotency-key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
                "description": "a request repeated with the same key and body publishes nothing new",
            },
        ],
        "requestBody": _body(OBJECT),
        "responses": {
            "200": _response("what became of it", OBJECT),
            **_errors(400, 403, 404, 409, 413, 429, 503),
        },
    }


def _pages() -> dict[str, Part]:
    facts = _struct(name=TEXT, rows=WHOLE, files=WHOLE, bytes=WHOLE, version=WHOLE, doc=TEXT)
    rows = _struct(
        table=TEXT, doc=TEXT, total=WHOLE, newest_by={"type": ["string", "null"]}, columns=_list(TEXT),
        rows=_list(_list({})),
    )  # fmt: skip
    lag = _struct(
        epoch=TEXT, newest=WHOLE, sealed=WHOLE, unsealed_records=WHOLE, landed=OBJECT,
        not_landed=OBJECT, not_landed_records=WHOLE, or_more=FLAG, behind_seconds=NUMBER, has_tables=FLAG,
    )  # fmt: skip
    satellite = _struct(
        number=WHOLE, name=TEXT, epoch=WHOLE, publisher=TEXT, record=OBJECT, period_minutes=NUMBER,
        latitude={"type": "number", "minimum": -90, "maximum": 90},
        longitude={"type": "number", "minimum": -180, "maximum": 180}, altitude=NUMBER,
    )  # fmt: skip
    return {
        "/api/v1/tables/": {"get": _get("The lake's tables", _struct(tables=_list(facts)), errors=(500,))},
        "/api/v1/tables/{name}": {
            "get": _get(
                "The newest rows of a table",
                rows,
                parameters=[
                    _path("name", {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,40}$"}),
                    _query("limit", _from(0, 200), "at most so many"),
                ],
                errors=(400, 404, 500),
            )
        },
        "/api/v1/lag/": {"get": _get("How far the lake is behind this journal", lag)},
        "/api/v1/satellites/": {
            "get": _get(
                "Where the satellites are that the node follows",
                _struct(now=WHOLE, satellites=_list(satellite), too_old=WHOLE),
            )
        },
    }


def _protocols() -> dict[str, Part]:
    state = _struct(
        uid=TEXT, serial=WHOLE, ver=WHOLE, topic=TEXT, kind={"enum": ["json", "text", "binary"]}, status=TEXT,
        oldest={"type": ["integer", "null"]}, value={},
    )  # fmt: skip
    listed = _struct(uid=TEXT, topic=TEXT, serial=WHOLE, kind=TEXT, status=TEXT)
    uid = _path("uid", {"type": "string", "minLength": 1})
    serial = _from(0, SERIAL_MAX)
    wait = _query("wait", {"type": "number", "minimum": 0, "maximum": 60}, "seconds to wait for something newer")
    find = {
        "schema": TEXT, "where": {"type": ["object", "null"]}, "peer": TEXT, "limit": WHOLE, "offset": WHOLE,
        "order_by": TEXT, "order": {"enum": ["", "asc", "desc"]}, "keep": FLAG,
    }  # fmt: skip
    webhook = _struct(topic=TEXT, url=TEXT)
    return {
        "/sdsp/": {"get": _get("The objects of this node", _struct(objects=_list(listed)))},
        "/sdsp/{uid}": {
            "get": _get(
                "An object as it is, or as it was at a serial",
                state,
                parameters=[uid, _query("at", serial, "as it was"), _query("after", serial, "wait for a newer"), wait],
                errors=(400, 404, 503),
            )
        },
        "/sdsp/{uid}/frames": {
            "get": _get(
                "Frames of an object",
                _list(OBJECT),
                parameters=[
                    uid,
                    _query("first", serial, "from this serial"),
                    _query("last", serial, "to this one"),
                    _query("after", serial, "what follows"),
                    wait,
                ],
                errors=(400, 404),
            )
        },
        "/shrex/pools": {
            "get": _get("Peers by the data they announced", _struct(head=TEXT, synced=FLAG, pools=_list(OBJECT)))
        },
        "/sds/find": {
            "post": {
                "summary": "Find space data here, or ask a peer",
                "requestBody": _body(
                    {"type": "object", "properties": find, "required": ["schema"], "additionalProperties": False}
                ),
                "responses": {
                    "200": _response("what was found", _struct(records=_list(OBJECT))),
                    **_errors(400, 403, 404, 413, 429, 500, 502, 503),
                },
            }
        },
        "/relay/webhooks": {
            "get": _get("Who is called for prompting messages", _struct(webhooks=_list(webhook))),
            "post": {
                "summary": "Have an address called for prompting messages of a topic",
                "requestBody": _body(
                    {
                        "type": "object",
                        "properties": {
                            "topic": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                            "url": {"type": "string", "pattern": "^https?://[a-z0-9./-]{1,200}$"},
                        },
                        "required": ["topic", "url"],
                        "additionalProperties": False,
                    }
                ),
                "responses": {"201": _response("registered", webhook), **_errors(400, 403, 409, 413, 503)},
            },
        },
        "/relay/webhooks/{id}": {
            "delete": {
                "summary": "No longer call an address",
                "parameters": [_path("id", {"type": "string", "pattern": "^[0-9a-f]{1,64}$"})],
                "responses": {"204": {"description": "removed"}, **_errors(404)},
            }
        },
    }


def _get(summary: str, schema: Part, *, parameters: list[Part] | None = None, errors: tuple[int, ...] = ()) -> Part:
    return {
        "summary": summary,
        **({"parameters": parameters} if parameters else {}),
        "responses": {"200": _response(summary, schema), **_errors(*errors)},
    }


def _response(description: str, schema: Part) -> Part:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _body(schema: Part) -> Part:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _errors(*codes: int) -> dict[str, Part]:
    return {str(code): {"$ref": "#/components/responses/Error"} for code in (401, 421, *codes)}


def _query(name: str, schema: Part, description: str) -> Part:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _path(name: str, schema: Part) -> Part:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _from(low: int, high: int) -> Part:
    return {"type": "integer", "minimum": low, "maximum": high}


def _list(of: Part) -> Part:
    return {"type": "array", "items": of}


def _struct(**fields: Mapping[str, Any]) -> Part:
    return {"type": "object", "properties": dict(fields), "required": sorted(fields)}


def _error() -> Part:
    inner = {
        "type": "object",
        "required": ["type", "message"],
        "properties": {
            "type": TEXT,
            "message": TEXT,
            "hint": TEXT,
            "retry": FLAG,
            "reason": {"enum": [reason.value for reason in Reason]},
        },
    }
    return {"type": "object", "required": ["error"], "properties": {"error": inner}}


def _record() -> Part:
    nullable = {"type": ["string", "null"]}
    return {
        "type": "object",
        "required": ["name", "node", "epoch", "lsn", "protocol", "verdict", "received_at"],
        "properties": {
            "name": TEXT, "node": TEXT, "epoch": TEXT, "lsn": WHOLE, "protocol": TEXT, "topic": TEXT, "kind": TEXT,
            "direction": {"enum": ["in", "out"]}, "verdict": VERDICT, "reason": nullable, "received_at": TEXT,
            "raw": {"type": ["string", "null"], "contentEncoding": "base64"},
        },
    }  # fmt: skip
