"""`syncline lake`: lands segments in tables, and looks after the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, invocation, need_lake

if TYPE_CHECKING:
    from syncline.core.settings import Settings
    from syncline.lake.batch import BatchResult
    from syncline.lake.pipeline import Pipeline, RunSummary
    from syncline.lake.roots import Lake

app = typer.Typer(help="Land segments in tables, and look after the tables.", no_args_is_help=True)
Names = Annotated[list[str] | None, typer.Argument(metavar="TABLE…", help="Tables to work on (default: all)")]


@app.command()
def run(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on landing segments as they are sealed")] = False,
    master: Annotated[str | None, typer.Option(help="Spark master (default: the setting lake.master)")] = None,
    ship: Annotated[
        bool | None, typer.Option("--ship/--no-ship", help="Send our package to the executors (default: unless local)")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's own; may be repeated")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve Prometheus metrics on this port")
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="The address to serve them on, without a token; 0.0.0.0: to every host that reaches it")
    ] = "127.0.0.1",
    json: JsonFlag = False,
) -> None:
    """Land every sealed segment in the tables, exactly once, then stop (or go on, with --follow).

    With --json a line tells of every batch, and one at the end of the whole run. Damaged segments are put aside and make
    the command exit with 4, after everything else has landed.

    Example: [bold]syncline lake run && syncline query "SELECT * FROM sdsp_objects"[/bold]
    """
    from syncline.cli import logs

    settings = invocation(context).settings()
    logs.configure(settings.log)
    with output.busy("starting Spark"):
        pipeline = _pipeline(settings, master, ship, conf or [], json)
    if metrics_port is not None:
        from syncline.lake.metrics import serve_metrics

        serve_metrics(pipeline, metrics_port, metrics_host)
    summary = _follow(pipeline, settings.lake.seconds) if follow else pipeline.run_available()
    _tell(summary, pipeline, json)


@app.command()
def tables(context: typer.Context, json: JsonFlag = False) -> None:
    """Show the tables: rows, files, size and version.

    Example: [bold]syncline lake tables --json[/bold]
    """
    from syncline.lake.maintain import table_facts

    lake, known = _lake(invocation(context).settings()), _tables(None)
    facts = table_facts(lake, known)
    if json:
        output.json_line(facts)
        return
    rows = [(each.name, f"{each.rows:,}", each.files, f"{each.bytes / 1e6:,.1f} MB", each.version) for each in facts]
    output.table(["table", "rows", "files", "size", "version"], rows)


@app.command()
def audit(context: typer.Context, json: JsonFlag = False) -> None:
    """List where the tables contradict the nodes, and exit with 1 if they do.

    These are records whose content the lake, judging the bytes again, found otherwise than the node did; accepted
    notifications without a matching verified header; and headers that do not link. With --json every finding is a line.

    Example: [bold]syncline lake audit --json[/bold]
    """
    from syncline.core.errors import SynclineError
    from syncline.lake.audit import audit
    from syncline.lake.query import Queries

    with Queries(_lake(invocation(context).settings()), _tables(None)) as queries:
        found = audit(queries)
    if json:
        for finding in found:
            output.json_line(finding)
    elif found:
        output.table(["check", "record", "detail"], [(each.check, each.record, each.detail) for each in found])
    else:
        output.facts({"findings": 0})
    if found:
        raise SynclineError(
            f"{len(found)} disagreements", hint="`syncline explain RECORD` shows what a record is and how it was judged"
        )


@app.command()
def reprocess(
    context: typer.Context,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="A table to make anew; may be repeated (default: all)")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master (default: the setting lake.master)")] = None,
    ship: Annotated[
        bool | None, typer.Option("--ship/--no-ship", help="Send our package to the executors (default: unless local)")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's own; may be repeated")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Judge and decode history anew from the raw bytes in `records`, after a decoder or a rule was mended.

    With a table its states are folded anew too. Each table is replaced in one commit: killed in between, it can simply be
    run again. The pipeline must not be running.

    Example: [bold]syncline lake reprocess --table sds_omm[/bold]
    """
    from syncline.lake.reprocess import reprocess
    from syncline.lake.runner import OnSpark
    from syncline.lake.stages import Known, built_in_stages

    settings = invocation(context).settings()
    stages = built_in_stages(Known.of(settings))
    lake = _lake(settings)
    _tables(table)
    done = reprocess(lake, stages, OnSpark(_session(settings, master, ship, conf or [])), table or ())
    if json:
        output.json_line(done)
        return
    output.table(["table", "rows"], [(name, f"{rows:,}") for name, rows in done.items()], title="made anew")


@app.command()
def optimize(
    context: typer.Context,
    names: Names = None,
    by_key: Annotated[
        bool, typer.Option("--by-key", help="Also sort rows by the table's key; rewrites the whole table")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Merge small files into larger ones. May run beside the pipeline.

    Example: [bold]syncline lake optimize records --by-key[/bold]
    """
    from syncline.lake.maintain import optimize

    done = optimize(_lake(invocation(context).settings()), _tables(names), by_key=by_key)
    if json:
        output.json_line(done)
        return
    output.table(
        ["table", "files before", "after"], [(each.name, each.files_before, each.files_after) for each in done]
    )


@app.command()
def vacuum(
    context: typer.Context,
    hours: Annotated[
        int | None, typer.Option(min=1, help="Keep files younger than this (default: lake.keep_versions_hours)")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed")] = False,
    json: JsonFlag = False,
) -> None:
    """Remove what is no longer needed: old versions' files, orphans of killed runs, and days past their retention.

    Records and segments are removed only if lake.records_days or lake.segments_days say so, and segments only once every
    table holds them.

    Example: [bold]syncline lake vacuum --dry-run[/bold]
    """
    import datetime

    from syncline.lake import maintain
    from syncline.lake.stages import built_in_stages

    settings = invocation(context).settings()
    lake, today = _lake(settings), datetime.datetime.now(datetime.UTC).date()
    done: dict[str, Any] = {"dry_run": dry_run}
    if settings.lake.records_days and not dry_run:
        done["records"] = maintain.drop_old_records(lake, days=settings.lake.records_days, today=today)
    if settings.lake.segments_days:
        done["segments"] = maintain.drop_old_segments(
            lake, built_in_stages(), days=settings.lake.segments_days, today=today, dry_run=dry_run
        )
    kept = hours or settings.lake.keep_versions_hours
    done["files"] = maintain.vacuum(lake, _tables(None), hours=kept, dry_run=dry_run)
    if json:
        output.json_line(done)
        return
    output.table(["table", "files"], list(done["files"].items()), title="would remove" if dry_run else "removed")
    if "segments" in done:
        output.facts({"segments": done["segments"]})


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def cluster(
    role: Annotated[str, typer.Argument(help="master or worker")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT…", help="Passed on to Spark, e.g. --host, --port, --cores")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Become the master or a worker of a Spark cluster, with the Spark and Java that pip installed.

    With --json, which comes before the role, one line tells what is run.

    Example: [bold]syncline lake cluster worker spark://host:7077 --cores 2 --memory 2g[/bold]
    """
    import os

    from syncline.core.errors import UsageError

    need_lake()
    from syncline.lake.cluster import CLASSES, daemon

    if role not in CLASSES:
        raise UsageError(f"a cluster has a master and workers, no {role!r}")
    command, variables = daemon(role, arguments or [])
    if json:
        output.json_line({"role": role, "command": command})
    os.execve(command[0], command, {**os.environ, **variables})  # noqa: S606 - no shell is wanted


@app.command()
def export(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="A table, a view (docs/tables.md), or one SELECT")],
    out: Annotated[Path, typer.Option("--output", "-o", help="File to write; .parquet or .csv decides the form")],
    json: JsonFlag = False,
) -> None:
    """Write all rows of a table, of a view or of a query to one file. Reads only; rows and time are not bounded.

    Example: [bold]syncline lake export omm_latest --output omm.csv[/bold]
    """
    settings = invocation(context).settings()
    lake = _lake(settings)
    from syncline.lake.export import export
    from syncline.lake.query import Queries, QueryLimits

    with Queries(lake, _tables(None), QueryLimits(memory=settings.lake.query_memory)) as queries:
        done = export(queries, what, out)
    if json:
        output.json_line(done)
    else:
        output.facts({"file": done.path, "rows": f"{done.rows:,}", "size": f"{done.bytes / 1e6:,.1f} MB"})


@app.command()
def warm(json: JsonFlag = False) -> None:
    """Prepare Spark's Java on this machine so that it starts in about half the time. Takes half a minute, once.

    Example: [bold]syncline lake warm[/bold]
    """
    need_lake()
    from syncline.lake.warm import warm_up

    with output.busy("preparing Java"):
        archive = warm_up()
    facts = {"archive": str(archive), "bytes": archive.stat().st_size}
    output.json_line(facts) if json else output.facts(facts)


def _lake(settings: Settings) -> Lake:
    need_lake()
    from syncline.lake.roots import Lake

    return Lake.of(settings)


def _tables(names: list[str] | None) -> list[Any]:
    from syncline.lake.stages import all_tables, built_in_stages, table_named

    stages = built_in_stages()
    return [table_named(name, stages) for name in names] if names else list(all_tables(stages.values()).values())


def _pipeline(settings: Settings, master: str | None, ship: bool | None, conf: list[str], json: bool) -> Pipeline:
    from syncline.lake.pipeline import Pipeline
    from syncline.lake.stages import Known, built_in_stages

    return Pipeline(
        _session(settings, master, ship, conf),
        _lake(settings),
        buckets=settings.lake.buckets,
        stages=built_in_stages(Known.of(settings)),
        batch_segments=settings.lake.batch_segments,
        on_batch=_show_json if json else _show,
    )


def _session(settings: Settings, master: str | None, ship: bool | None, conf: list[str]) -> Any:
    from syncline.cli.common import pair
    from syncline.lake.session import SessionOptions, start_session

    options = SessionOptions(
        master=master or settings.lake.master, ship=ship, conf=dict(pair(text, "--conf") for text in conf)
    )
    return start_session(options)


def _follow(pipeline: Pipeline, seconds: float) -> RunSummary:
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: pipeline.stop())
    return pipeline.run(seconds)


def _show_json(result: BatchResult) -> None:
    output.json_line({"event": "batch", **_plain(result)})


def _show(result: BatchResult) -> None:
    added = ", ".join(f"{name} +{rows:,}" for name, rows in result.added.items())
    line = f"batch {'-' if result.batch is None else result.batch}: {result.segments} segments, {added}"
    output.progress_console().print(f"{line} in {result.seconds:.2f} s")


def _tell(summary: RunSummary, pipeline: Pipeline, json: bool) -> None:
    from syncline.core.errors import CorruptionError

    lag = pipeline.lag()
    if json:
        output.json_line({"event": "done", **_plain(summary), "lag": lag})
    else:
        output.facts(
            {
                "segments": summary.segments,
                "records": f"{summary.records:,}",
                **{f"+ {name}": f"{rows:,}" for name, rows in summary.added.items()},
                "seconds": f"{summary.seconds:.1f}",
                "waiting": f"{lag.segments} segments",
            }
        )
    if summary.damaged_count:
        blobs = any(not damage.is_segment for damage in summary.damaged)
        raise CorruptionError(
            f"{summary.damaged_count} damaged files were found; everything else has landed",
            hint="segments were moved to .quarantine; put back good copies and run again"
            + ("; put back large messages (blobs/…), then run `syncline lake reprocess`" if blobs else ""),
            about=", ".join(damage.path for damage in summary.damaged[:3]),
        )


def _plain(value: Any) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(value)
    return found
