"""What `--help` shows: groups, an example for every command, and examples that are true."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer

from syncline.cli.main import COMMANDS, app
from tests.cli.conftest import Run
from tools.docs import _commands

LEAVES = list(_commands(typer.main.get_command(app), "syncline"))
SPLIT = {"&&", "|", "&", ">"}


def examples(command: Any) -> list[str]:
    return re.findall(r"Example: \[bold\](.*?)\[/bold\]", command.help or "", re.DOTALL)


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[path for path, _ in LEAVES])
def test_a_command_shows_an_example_that_it_would_understand(path: str, command: Any) -> None:
    found = examples(command)
    assert len(found) == 1, path
    own = [call for call in calls(found[0]) if " ".join(["syncline", *call]).startswith(path)]
    assert own, found
    for call in calls(found[0]):
        check(call)


@pytest.mark.parametrize(("path", "command"), LEAVES[1:], ids=[path for path, _ in LEAVES[1:]])
def test_a_command_prints_json_when_asked(path: str, command: Any) -> None:
    assert [option for parameter in command.params for option in parameter.opts if option == "--json"] == ["--json"]


def calls(example: str) -> list[list[str]]:
    """The arguments of each `syncline …` in a line of shell."""
    words, found = shlex.split(example), []
    for place, word in enumerate(words):
        if word == "syncline":
            rest = words[place + 1 :]
            end = next((index for index, each in enumerate(rest) if each in SPLIT), len(rest))
            found.append(rest[:end])
    return found


def check(words: list[str]) -> None:
    """Walk to the command and see that it has the options the example uses."""
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    assert not hasattr(command, "commands") or words == [], words
    if command.context_settings.get("ignore_unknown_options"):
        return  # they are another program's
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} <= known


def test_commands_are_shown_in_groups_without_colours_when_piped(run: Run) -> None:
    shown = run("--help").stdout
    assert "\x1b" not in shown
    places = [shown.index(group) for group in dict.fromkeys(COMMANDS.values())]
    assert places == sorted(places)
    assert "A first look" in shown


def test_tail_names_the_verdicts_and_reasons_it_knows(run: Run) -> None:
    wrong = run("tail", "--reason", "bad_luck", "-e")
    assert wrong.returncode == 2
    assert "--reason is one of malformed" in " ".join(wrong.stderr.split())
    assert run("tail", "--verdict", "maybe", "-e").returncode == 2


def test_waiting_for_a_node_that_does_not_come_ends_with_3(run: Run) -> None:
    away = run("wait", "--seconds", "0.3", "--node", "http://127.0.0.1:9")
    assert away.returncode == 3
    assert away.stdout == ""


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[path for path, _ in LEAVES])
def test_no_help_holds_brackets_that_the_terminal_swallows(path: str, command: Any) -> None:
    for parameter in command.params:
        assert "[" not in (getattr(parameter, "help", None) or ""), (path, parameter.name)
        assert not (parameter.metavar or "").startswith("["), (path, parameter.name)  # optional ones get theirs anyway
