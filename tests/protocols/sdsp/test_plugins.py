"""Plug-ins: the built-in ones, and those of a package by somebody else, installed by pip beside ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from syncline.core.errors import DecodeError, UsageError
from syncline.protocols.sdsp.plugins import Header, header_of, open_storage, open_transport, scheme_of

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

PROGRAM = """
import anyio, json
from syncline.protocols.sdsp.deltas import Deltas
from syncline.protocols.sdsp.plugins import open_storage
from syncline.protocols.sdsp.publisher import Publisher
from syncline.protocols.sdsp.session import Policy
from syncline.protocols.sdsp.subscriber import follow
from syncline.protocols.sdsp.wire import decode

async def main():
    box = open_storage("shoebox:")
    policy = Policy(algorithm="X-append", delta_ratio=9, cumulative_ratio=99)
    async with Publisher("pigeon:roof", storage=box, policy=policy) as publisher:
        note = await publisher.create("dear", uid="note", topic="mail")
        await note.update("dear reader")
        large = await publisher.create("x" * 400, uid="large", topic="mail")
        async with follow("pigeon:roof", "note", topic="mail", history=["attic"]) as object:
            late = await anext(object)
        async with follow("pigeon:roof", "large", topic="mail", history=["attic"], storage=box) as object:
            whole = await anext(object)
        frames = [decode(raw) for raw in publisher.transport.attic]
    print(json.dumps({
        "late": [late.serial, late.value],
        "whole": len(whole.value),
        "alg": frames[1].alg,
        "uri": frames[2].data_uri,
        "problems": list(Deltas.installed().problems),
    }))

anyio.run(main, backend="trio")
"""


@pytest.fixture(scope="module")
def run_beside(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs Python where the foreign package is installed beside ours."""
    target = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "pigeon"
    shutil.copytree(HERE / "pigeon", source)
    quiet = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, "--target", target, source], check=True)

    def run(*arguments: str, code: int = 0) -> str:
        path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT / "src"), str(target)])
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stdout

    return run


def test_plug_ins_of_an_installed_package_are_found_and_work_together(run_beside: Callable[..., str]) -> None:
    assert json.loads(run_beside("-c", PROGRAM)) == {
        "late": [1, "dear reader"],
        "whole": 400,
        "alg": "X-append",
        "uri": "shoebox:card-0",
        "problems": ["X-broken = pigeon_post:nothing_of_that_name"],
    }


def test_the_command_line_lists_them_with_their_package_and_what_is_wrong(run_beside: Callable[..., str]) -> None:
    listed = json.loads(run_beside("-m", "syncline.cli.main", "plugins", "--json", code=1))
    pigeons = {each["name"]: each for each in listed if each["package"] == "pigeon-post"}
    assert set(pigeons) == {"pigeon", "attic", "shoebox", "X-append", "X-broken"}
    assert (pigeons["pigeon"]["version"], pigeons["pigeon"]["problem"]) == ("1.2.3", "")
    assert "nothing_of_that_name" in pigeons["X-broken"]["problem"]


def test_every_built_in_plug_in_can_be_loaded() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    groups = [group for group in points if group.startswith("syncline.sdsp.")]
    assert groups == [f"syncline.sdsp.{each}" for each in ("deltas", "transports", "history", "storage")]
    for group in groups:
        for target in points[group].values():
            module, _, name = target.partition(":")
            assert callable(getattr(import_module(module), name))


@pytest.mark.parametrize(("spec", "scheme"), [("memory:x", "memory"), ("HTTP://h", "http"), ("nats://a:1/S", "nats")])
def test_a_url_names_its_plug_in(spec: str, scheme: str) -> None:
    assert scheme_of(spec) == scheme


def test_what_no_plug_in_is_there_for_is_said_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="there is no transport called 'carrier'"):
        open_transport("carrier:x")
    with pytest.raises(UsageError, match="there is no object storage called 'attic'"):
        open_storage("attic:x")
    with pytest.raises(UsageError, match="'nothing' names no scheme"):
        open_transport("nothing")


def test_transports_see_no_more_of_a_payload_than_its_header() -> None:
    assert header_of(b'{"uid":"a","serial":7,"ver":2,"delta":[],"alg":"jp"}') == Header("a", 7, 2)
    assert header_of(b'{"uid":"a","serial":7,"ver":null,"data":1}').base == 7
    for payload in (b"", b"[]", b'{"uid":1,"serial":0}', b"\xff"):
        with pytest.raises(DecodeError):
            header_of(payload)
