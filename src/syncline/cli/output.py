"""What commands print: JSON or tables on standard output, problems in one line on standard error.

Colours appear only on a terminal. Progress and logs go to standard error, so that output can be piped.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from syncline.core.errors import SynclineError

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH: Final = 4_000
COLUMN_LEAST: Final = 8  # characters a column of an answer needs to be of use
# What a terminal would obey instead of showing: controls but newline and tab, marks that turn the reading
# direction; and halves of surrogate pairs, which it cannot be sent.
_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NUMBER: Final = re.compile(r"[-+]?[\d,]*\.?\d+")


def json_line(value: Any) -> None:
    """One JSON document on a line of its own."""
    sys.stdout.write(msgspec.json.encode(value, enc_hook=str).decode() + "\n")
    sys.stdout.flush()


def console() -> Console:
    """Standard output. A file or a pipe has no edge at which something would have to be cut."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def progress_console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, nothing elsewhere; call what it gives with how much is done, and of how much."""
    from rich.progress import Progress

    with Progress(console=progress_console(), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Says on a terminal that something takes its time, and nothing elsewhere."""
    if sys.stderr.isatty():
        with progress_console().status(what):
            yield
    else:
        yield


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
    """Rows for people; text from messages is never read as markup, nor obeyed by the terminal."""
    from rich.table import Table
    from rich.text import Text

    if title:  # not as the table's own, which would be broken to its width
        console().print(Text(title, style="italic"), soft_wrap=True)
    drawn = Table(header_style="bold", box=None, pad_edge=False)
    cells = [
        [cell if isinstance(cell, Text) else Text("" if cell is None else visible(str(cell))) for cell in row]
        for row in rows
    ]
    for place, column in enumerate(columns):
        numbers = bool(cells) and all(_NUMBER.fullmatch(row[place].plain) for row in cells)
        drawn.add_column(Text(visible(column)), justify="right" if numbers else "left")
    for row in cells:
        drawn.add_row(*row)
    console().print(drawn)


def visible(text: str) -> str:
    """Text that a stranger may have written, with everything a terminal would obey spelled out."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


def answer(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows of any number of columns: as a table where it fits, else each row as a list of names and values."""
    held = list(rows)
    if not held:
        progress_console().print("no rows", style="dim")
    if len(columns) * COLUMN_LEAST <= console().width:
        table(columns, held)
        return
    for number, row in enumerate(held, 1):
        sys.stdout.write(f"--- row {number}\n")
        facts(dict(zip(columns, row, strict=True)))


def facts(pairs: Mapping[str, Any]) -> None:
    """Names and values, one a line."""
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        sys.stdout.write(f"{name:<{width}}  {'' if value is None else visible(str(value))}\n")


def problem(error: SynclineError) -> None:
    """An error in one line, with what to do."""
    from rich.text import Text

    line = Text("error: ", style="bold red")
    line.append(visible(" ".join(str(error).split("\n"))), style="not bold default")
    if error.hint:
        line.append(f"; {visible(error.hint)}", style="not bold dim")
    progress_console().print(line, soft_wrap=True)
