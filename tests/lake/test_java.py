"""Which Java is taken, what is said when there is none, and how the class archive's options come about."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from syncline.core.errors import MissingError
from syncline.lake import java
from syncline.lake.java import find_java, quiet_home


def fake_java(home: Path, version: str, *, release: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\nshift 0\nprintf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize("release", [True, False])
def test_java_home_comes_before_the_path(tmp_path: Path, release: bool) -> None:
    named = fake_java(tmp_path / "named", "21.0.2", release=release)
    other = fake_java(tmp_path / "other", "17.0.1")
    found = find_java({"JAVA_HOME": str(named), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.origin) == (named, 21, "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_392")
    good = fake_java(tmp_path / "good", "17.0.1")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")})
    assert (found.version, found.origin) == (17, "PATH")


def test_without_any_the_bundled_one_is_taken(tmp_path: Path) -> None:
    found = find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": ""})
    assert (found.version, found.origin) == (21, "bundled")


def test_what_was_seen_is_told_if_none_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(MissingError, match="JAVA_HOME has Java 11") as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    assert "syncline[spark]" in caught.value.hint


def test_the_wrapped_java_gets_every_argument_but_the_one_it_stumbles_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = find_java({"JAVA_HOME": str(fake_java(tmp_path / "java", "17.0.1"))})
    program = quiet_home(found) / "bin" / "java"
    arguments = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "-Dx=*", "Main", ""]
    printed = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    assert printed.split("\n")[:-1] == ["-cp", "a b:c", "-Dx=*", "Main", ""]
