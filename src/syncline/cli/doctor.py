"""`syncline doctor`: what is wrong with this installation, and the line that mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli import output
from syncline.cli.common import JsonFlag, invocation

if TYPE_CHECKING:
    from syncline.core.settings import Settings
    from syncline.node.health import Finding

FIX = "point JAVA_HOME at Java 17 or newer, or unset it"


def run(
    context: typer.Context,
    clock: Annotated[
        list[str] | None, typer.Option("--clock", metavar="URL", help="Also compare our clock with this address")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Check key, ports, token, disk, clock, journal, plug-ins and Java. Exits 1 when something must be mended.

    Example: [bold]syncline doctor --clock http://127.0.0.1:7070/metrics[/bold]
    """
    from rich.text import Text

    from syncline.core.clock import SystemClock
    from syncline.node import health
    from syncline.node.plugins import installed

    settings = invocation(context).settings()
    findings = [
        health.check_key(settings.key_file),
        *health.check_ports(settings, _spoken(settings)),
        health.check_token(settings.api),
        *health.check_disk(settings.data, settings.journal),
        *health.check_clock([*settings.node.clock_urls, *(clock or ())], SystemClock()),
        health.check_journal(settings.journal_file, settings.key_file),
        _java(),
        *(
            health.Finding("plug-in", "warn", f"{each.name}: {each.problem}", each.fix)
            for each in installed()
            if each.problem
        ),
    ]
    if json:
        output.json_line({"findings": findings})
    else:
        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        rows = [(Text(each.level, style=colours[each.level]), each.check, each.detail, each.fix) for each in findings]
        output.table(["", "check", "found", "fix"], rows)
    if any(each.level == "fail" for each in findings):
        raise typer.Exit(1)


def _spoken(settings: Settings) -> list[str]:
    """The protocols that a node with these settings speaks."""
    from syncline.node.plugins import protocol_plugins

    return sorted(protocol_plugins(settings.node.protocols))


def _java() -> Finding:
    """The Java that Spark would use."""
    from syncline.core.errors import MissingError
    from syncline.node.health import Finding

    try:
        from syncline.lake.java import find_java

        found = find_java()
    except MissingError as error:
        return Finding("java", "fail", str(error), error.hint)
    except ImportError as error:
        return Finding("java", "warn", f"the lake is not installed: {error}", "pip install 'syncline[spark]'")
    wrong = _passed_over(found.origin)
    if wrong:
        return Finding(
            "java", "warn", f"{wrong} has no Java that runs Spark; {found.origin}'s {found.version} is used", FIX
        )
    return Finding("java", "ok", f"{found.version} from {found.origin}")


def _passed_over(used: str) -> str:
    """A Java the user seems to have chosen, but that cannot be used."""
    import os
    import shutil

    if used != "JAVA_HOME" and os.environ.get("JAVA_HOME"):
        return "JAVA_HOME"
    return "PATH" if used == "bundled" and shutil.which("java") else ""
