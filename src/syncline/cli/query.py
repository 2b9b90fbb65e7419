"""`syncline query`: SQL over the tables."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, invocation, need_lake

if TYPE_CHECKING:
    import pyarrow as pa

    from syncline.core.settings import Settings
    from syncline.lake.query import Answer


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


class Engine(StrEnum):
    DUCKDB = "duckdb"
    SPARK = "spark"


def run(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(help="One SELECT over the tables of docs/tables.md")],
    form: Annotated[Format, typer.Option("--format", "-F", help="How to print the rows")] = Format.TABLE,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file; needed for parquet")] = None,
    engine: Annotated[Engine, typer.Option(help="duckdb answers at once; spark takes large answers")] = Engine.DUCKDB,
    rows: Annotated[int | None, typer.Option(min=1, help="Most rows to return (default: lake.query_rows)")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.01, help="Longest time to take (default: lake.query_seconds; with spark, any)")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Ask the tables a question in SQL. Reads only; time, memory and rows are bounded.

    With --json every row is a line. `sdsp_object(uid, serial)` gives an SDSP object as it was at that serial.

    Example: [bold]syncline query "SELECT status, count(*) FROM sdsp_objects GROUP BY 1"[/bold]
    """
    form = Format.JSON if json else form
    if form is Format.PARQUET and out is None:
        from syncline.core.errors import UsageError

        raise UsageError("Parquet needs a file", hint="add --output rows.parquet")
    settings = invocation(context).settings()
    answer = _ask(settings, sql, engine, rows, seconds)
    _write(answer.rows, form, out)
    if answer.truncated:
        message = f"only the first {answer.rows.num_rows:,} rows: raise --rows, or use --engine spark"
        output.progress_console().print(message, style="yellow")


def _ask(settings: Settings, sql: str, engine: Engine, rows: int | None, seconds: float | None) -> Answer:
    need_lake()
    from syncline.lake.query import Queries, QueryLimits
    from syncline.lake.roots import Lake
    from syncline.lake.stages import all_tables, built_in_stages

    bounds = QueryLimits(
        rows=rows or settings.lake.query_rows,
        seconds=seconds or settings.lake.query_seconds,
        memory=settings.lake.query_memory,
    )
    lake, tables = Lake.of(settings), all_tables(built_in_stages().values()).values()
    if engine is Engine.DUCKDB:
        with Queries(lake, tables, bounds) as queries:
            return queries.ask(sql)
    from syncline.lake.query_spark import ask_spark, register_tables
    from syncline.lake.session import SessionOptions, start_session

    spark = start_session(SessionOptions(master=settings.lake.master))
    register_tables(spark, lake, tables)
    return ask_spark(spark, sql, bounds, seconds)


def _write(rows: pa.Table, form: Format, out: Path | None) -> None:
    if form is Format.PARQUET:
        import pyarrow.parquet as pq

        pq.write_table(rows, out, compression="zstd")
    elif form is Format.TABLE and out is None:
        output.answer(rows.column_names, ([_cell(value) for value in row.values()] for row in rows.to_pylist()))
    else:
        text = _text(rows, form)
        if out is None:
            sys.stdout.write(text)
        else:
            out.write_text(text)


def _text(rows: pa.Table, form: Format) -> str:
    import csv
    import io

    import msgspec

    if form is Format.JSON:
        encoder = msgspec.json.Encoder(enc_hook=str)
        return "".join(encoder.encode(row).decode() + "\n" for row in rows.to_pylist())
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(rows.column_names)
    writer.writerows([_cell(value) for value in row.values()] for row in rows.to_pylist())
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
