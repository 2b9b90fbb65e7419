"""`syncline journal`: looks into a node's journal, checks it, copies it and brings back what is intact."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, invocation
from syncline.core.errors import UsageError

if TYPE_CHECKING:
    from syncline.core.settings import Settings
    from syncline.journal import SegmentTarget

app = typer.Typer(help="Look into a node's journal, check it, copy it.", no_args_is_help=True)


@app.command()
def inspect(context: typer.Context, json: JsonFlag = False) -> None:
    """Show a journal in figures: epoch, range, verdicts by reason, what is sealed. The node may be running.

    Example: [bold]syncline journal inspect --json[/bold]
    """
    from syncline.formats.records import iso_time
    from syncline.journal.inspect import inspect

    found = inspect(_settings(context).journal_file)
    if json:
        output.json_line(found)
        return
    output.facts(
        {
            "journal": found.path,
            "node": found.node,
            "epoch": found.epoch,
            "records": f"{found.records:,} (lsn {found.oldest:,} to {found.newest:,})",
            "sealed": f"up to lsn {found.sealed:,}; {found.unsealed:,} wait",
            "received": " to ".join(iso_time(at) for at in (found.received_from, found.received_to) if at is not None),
            "size": f"{found.database_bytes / 1e6:,.1f} MB, log {found.log_bytes / 1e6:,.1f} MB",
            "state": ", ".join(f"{space} {count:,}" for space, count in sorted(found.states.items())),
        }
    )
    rows = [
        (each.protocol, each.verdict, each.reason or "", f"{each.records:,}", f"{each.counted:,}")
        for each in found.counts
    ]
    output.table(["protocol", "verdict", "reason", "kept", "only counted"], rows)


@app.command()
def verify(context: typer.Context, json: JsonFlag = False) -> None:
    """Check every row, blob and segment against its checksum, and that nothing is missing or there twice.

    Exits 4 if something is damaged. The node may be running.

    Example: [bold]syncline journal verify[/bold]
    """
    from syncline.core.errors import CorruptionError
    from syncline.journal import LocalBlobs
    from syncline.journal.verify import verify

    settings = _settings(context)
    with output.progress("verifying") as progress:
        found = verify(
            settings.journal_file,
            target=_target(settings),
            blobs=LocalBlobs(settings.journal_file.parent / "blobs"),
            progress=lambda what, done, of: progress(done, of),
        )
    if json:
        output.json_line({"sound": found.sound, **{name: getattr(found, name) for name in found.__struct_fields__}})
    else:
        figures = ("records", "states", "blobs", "segments", "sealed_records")
        output.facts({name.replace("_", " "): f"{getattr(found, name):,}" for name in figures})
        for problem in found.problems:
            output.console().print(f"damaged: {problem.where}: {problem.what}", markup=False, soft_wrap=True)
    if not found.sound:
        raise CorruptionError(
            f"{len(found.problems)} things are damaged; nothing was changed",
            hint="stop the node and run `syncline journal recover`",
            about=str(settings.journal_file),
        )


@app.command()
def export(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="File to write; - is standard output")] = "-",
    format: Annotated[str, typer.Option("--format", help="parquet, arrow, ndjson or csv")] = "ndjson",
    after: Annotated[int, typer.Option(min=0, help="Only records behind this lsn")] = 0,
    protocol: Annotated[str | None, typer.Option(help="Only this protocol")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic")] = None,
    verdict: Annotated[str | None, typer.Option(help="accept, reject or ignore")] = None,
    json: JsonFlag = False,
) -> None:
    """Write records to a file. The node may be running.

    Example: [bold]syncline journal export records.parquet --format parquet --protocol sdsp[/bold]
    """
    from syncline.core.ports import RecordQuery
    from syncline.journal.export import check_export, export

    query = RecordQuery(after=after, protocol=protocol, topic=topic, verdict=verdict, limit=2**62)
    journal = _settings(context).journal_file
    check_export(journal, format)  # before there is a file
    with output.progress("exporting") as progress, _opened(file) as out:
        count = export(journal, query, out, format, progress)  # type: ignore[arg-type]
    if file != "-":
        found = {"file": file, "records": count}
        output.json_line(found) if json else output.facts(found)


@app.command()
def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="New file to write; never overwritten")],
    json: JsonFlag = False,
) -> None:
    """Copy the journal while the node runs. The copy is checked page by page.

    Example: [bold]syncline journal backup copy.db[/bold]
    """
    from syncline.journal.backup import backup

    with output.progress("copying") as progress:
        newest = backup(_settings(context).journal_file, file, progress)
    found = {"file": str(file), "newest": newest}
    output.json_line(found) if json else output.facts(found)


@app.command()
def recover(
    context: typer.Context,
    source: Annotated[
        Path | None, typer.Option("--from", help="A backup to recover from instead of the journal")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Make a new journal of what is intact in a damaged one. The damaged files are put aside, never deleted.

    The node must be stopped. Exits 1 if records are lost, and says which.

    Example: [bold]syncline journal recover[/bold]
    """
    from syncline.core.clock import SystemClock
    from syncline.core.keys import NodeKey
    from syncline.journal.recover import recover

    settings = _settings(context)
    with output.progress("recovering") as progress:
        found = recover(
            settings.journal_file,
            node=NodeKey.load(settings.key_file).peer_id,
            clock=SystemClock(),
            target=_target(settings),
            source=source,
            progress=progress,
        )
    if json:
        output.json_line(found)
    else:
        output.facts(
            {
                "put aside": ", ".join(found.quarantined),
                "new epoch": found.epoch,
                "records": f"{found.records:,} carried over",
                "state": f"{found.states:,} entries" + ("" if found.states_complete else ", not all could be read"),
                "lost": ", ".join(f"{lo} to {hi}" for lo, hi in found.missing) or "nothing",
            }
        )
    if found.missing or not found.states_complete:
        raise typer.Exit(1)


def _settings(context: typer.Context) -> Settings:
    return invocation(context).settings()


def _target(settings: Settings) -> SegmentTarget:
    from syncline.journal import target_of

    return target_of(settings.segments, settings.segments_folder)


@contextlib.contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdout.buffer
        return
    path = Path(file)
    try:
        out = path.open("xb")
    except FileExistsError:
        raise UsageError("a file of this name is already there", hint="name a new one", about=file) from None
    with out:
        yield out
