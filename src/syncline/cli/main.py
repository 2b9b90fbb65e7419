"""The command line: one module per command, each light to import, so that `syncline --help` answers at once.

A module has either `app` (a group of commands) or `run` (one command). Errors become one line and a stable exit code:
0 ok, 1 failed, 2 usage, 3 not reachable, 4 corrupt data.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

import typer

from syncline.cli import output, problems
from syncline.cli.common import Invocation

COMMANDS: Final = {
    "demo": "Run a node",
    "init": "Run a node",
    "up": "Run a node",
    "wait": "Run a node",
    "doctor": "Run a node",
    "config": "Run a node",
    "keys": "Run a node",
    "plugins": "Run a node",
    "tail": "Follow and publish",
    "pub": "Follow and publish",
    "get": "Follow and publish",
    "peers": "Follow and publish",
    "sdsp": "Follow and publish",
    "journal": "Look after data",
    "lake": "Look after data",
    "query": "Look after data",
    "explain": "Look after data",
    "bench": "Measure",
}

app = typer.Typer(
    name="syncline",
    help=(
        "Lands decentralised pub/sub networks in Spark, with proof.\n\n"
        "Example: [bold]syncline init my-node && cd my-node && syncline up[/bold]"
    ),
    epilog="A first look: [bold]syncline demo[/bold]. Every command has --help with an example, and --json.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"syncline {version('syncline')}")
        raise typer.Exit


@app.callback()
def syncline(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", envvar="SYNCLINE_CONFIG", help="Settings file (default: ./syncline.toml)"),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, e.g. api.port=0")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit")
    ] = False,
) -> None:
    context.obj = Invocation(config, tuple(set_ or ()))


def _register() -> None:
    for name, panel in COMMANDS.items():
        module = import_module(f"syncline.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(module.run)


_register()


def main() -> None:
    """The entry point of the `syncline` program."""
    try:
        sys.exit(app(prog_name="syncline", standalone_mode=False))
    except KeyboardInterrupt:
        sys.exit(130)
    except typer.Abort:
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        problem = problems.told(error)
        if problem is None:
            raise  # a fault of ours: the traceback is what a report of it needs
        output.problem(problem)
        sys.exit(problem.exit_code)


if __name__ == "__main__":
    main()
