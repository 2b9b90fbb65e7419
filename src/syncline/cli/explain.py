"""`syncline explain`: the path of one record, from the bytes that came to the rows that were made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, invocation, need_lake

if TYPE_CHECKING:
    from syncline.core.record import Record
    from syncline.core.settings import Settings
    from syncline.core.verdict import Verdict
    from syncline.lake.explain import Explanation

_RAW_SHOWN = 512  # bytes of a message printed for people; --json has all
_TEXT_SHOWN = 200


def run(
    context: typer.Context,
    record: Annotated[str, typer.Argument(help="node/epoch/lsn, or the first hex digits of the record's id")],
    json: JsonFlag = False,
) -> None:
    """Print the path of a record: its bytes, what they say, who sent it, why it was accepted or not, where it is now.

    Looks in the tables, and, for what has not landed yet, in this node's own journal.

    Example: [bold]syncline explain 9f86d081884c[/bold]
    """
    settings = invocation(context).settings()
    found = _explanation(settings, record)
    told = _told(found)
    if json:
        output.json_line(told)
        return
    _print(told)


def _explanation(settings: Settings, text: str) -> Explanation:
    need_lake()
    from syncline.core.errors import NotFoundError
    from syncline.lake.explain import Explanation, explain, judged_again
    from syncline.lake.query import Queries
    from syncline.lake.roots import Lake
    from syncline.lake.stages import Known, all_tables, built_in_stages

    lake, stages = Lake.of(settings), built_in_stages(Known.of(settings))
    try:
        with Queries(lake, all_tables(stages.values()).values()) as queries:
            return explain(lake, queries, stages, text)
    except NotFoundError:
        kept = _in_journal(settings, text)
        if kept is None:
            raise
    again = judged_again(lake, stages.get(kept.protocol), kept)
    return Explanation(record=kept, segment="", lake_verdict=again, copies=[], rows={})


def _in_journal(settings: Settings, text: str) -> Record | None:
    """The record in this node's own journal, if it is there under its name."""
    from syncline.core.ports import RecordQuery
    from syncline.core.record import RecordName
    from syncline.journal.reading import reading
    from syncline.journal.rows import record_of

    if "/" not in text or not settings.journal_file.exists():
        return None
    name = RecordName.parse(text)
    with reading(settings.journal_file) as journal:
        if (journal.about.node, journal.about.epoch) != (name.node, name.epoch):
            return None
        for page in journal.pages(RecordQuery(after=name.lsn - 1, before=name.lsn + 1, limit=1)):
            return record_of(page[0], journal.about.node, journal.about.epoch)
    return None


def _told(found: Explanation) -> dict[str, Any]:
    """The explanation as JSON: bytes as hex, big numbers as text."""
    from syncline.formats.records import to_json
    from syncline.node.plugins import protocol_plugins

    record = found.record
    plugin = protocol_plugins().get(record.protocol)
    whole = to_json(record)
    whole["raw"] = None if record.raw is None else record.raw.hex()
    return {
        "record": whole,
        "decoded": dict(plugin.decoded(record)) if plugin is not None and record.raw is not None else None,
        "why": _why(found.record.verdict.value, found.record.reason),
        "lake": _again(found.lake_verdict),
        "segment": found.segment or None,
        "copies": found.copies,
        "tables": {name: [_plain(row) for row in rows] for name, rows in found.rows.items()},
    }


def _why(verdict: str, reason: Any) -> str:
    from syncline.core.verdict import Reason

    if reason is None:
        return verdict
    known = Reason(reason)
    return f"{verdict}: {known.value} ({known.about}): {known.doc}"


def _again(verdict: Verdict | None) -> str | None:
    return None if verdict is None else _why(verdict.outcome.value, verdict.reason)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}


def _print(told: dict[str, Any]) -> None:
    record = told["record"]
    raw = record.pop("raw") or ""
    output.facts(
        {
            "record": record["name"],
            "protocol": f"{record['protocol']} {record['kind']}, {record['direction']}",
            "about": " ".join(str(record[name]) for name in ("topic", "key", "seq") if record[name]),
            "id": record["id"],
            "publisher": record["publisher"] or "unknown",
            "peer": record["peer"] or "none",
            "published at": record["published_at"],
            "received at": record["received_at"],
            "node said": told["why"],
            "lake says": told["lake"] or "nothing: no bytes, or a key that is not here",
            "segment": told["segment"] or "not landed",
            "copies": len(told["copies"]),
        }
    )
    _section("bytes", [f"{len(raw) // 2} bytes", raw[: 2 * _RAW_SHOWN] + ("…" if len(raw) > 2 * _RAW_SHOWN else "")])
    _section("decoded", [f"{name}: {_short(value)}" for name, value in (told["decoded"] or {}).items()])
    for name, rows in told["tables"].items():
        for row in rows:
            _section(name, [f"{column}: {_short(value)}" for column, value in row.items() if value is not None])


def _section(title: str, lines: list[str]) -> None:
    if not lines:
        return
    output.console().print(f"\n{title}", style="bold")
    for line in lines:
        output.console().print(f"  {output.visible(line)}", markup=False, soft_wrap=True)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}… ({len(text)} characters)"
