"""Finds protocols and other plug-ins through entry points, the built-in ones too.

A plug-in that cannot be loaded (a library it needs is missing) is reported with the reason, never fatal by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points, metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from syncline.core.errors import MissingError, UsageError
from syncline.core.ports import ProtocolPlugin
from syncline.core.settings import CORE_SECTIONS, Settings, load

PROTOCOLS: Final = "syncline.protocols"
GROUPS: Final = {
    PROTOCOLS: "protocols a node speaks",
    "syncline.sdsp.deltas": "delta algorithms of SDSP",
    "syncline.sdsp.transports": "what SDSP can ride on",
    "syncline.sdsp.history": "where SDSP finds earlier frames",
    "syncline.sdsp.storage": "object stores for large SDSP objects",
    "syncline.shrex.headers": "sources of block headers",
}


class Found(msgspec.Struct, frozen=True):
    """One installed plug-in, and why it cannot be used and what to do, if so."""

    group: str
    name: str
    package: str
    version: str
    target: str
    problem: str = ""
    fix: str = ""


def installed() -> list[Found]:
    """Every plug-in of every group, loaded to see whether it works."""
    found = []
    for group in GROUPS:
        for point in sorted(entry_points(group=group), key=lambda each: each.name):
            package = point.dist.name if point.dist else ""
            version = point.dist.version if point.dist else ""
            problem = _problem(point)
            fix = _fix(point) if problem else ""
            found.append(Found(group, point.name, package, version, point.value, problem, fix))
    return found


def protocol_plugins(names: Iterable[str] | None = None) -> dict[str, ProtocolPlugin]:
    """The protocols asked for by name, or all that can be loaded."""
    points = {point.name: point for point in entry_points(group=PROTOCOLS)}
    if names is None:
        return dict(_loadable())
    plugins: dict[str, ProtocolPlugin] = {}
    for name in names:
        if name not in points:
            raise UsageError(f"there is no protocol {name!r}", hint=f"installed are: {', '.join(sorted(points))}")
        if problem := _problem(points[name]):
            raise MissingError(f"protocol {name} cannot be loaded: {problem}", hint=_fix(points[name]))
        plugins[name] = points[name].load()
    return plugins


def protocol_sections() -> Mapping[str, type[msgspec.Struct]]:
    """The settings sections that installed protocols bring."""
    sections = {}
    for name, plugin in _loadable().items():
        if name in CORE_SECTIONS:
            raise UsageError(f"a protocol may not be called {name!r}: the section is taken")
        sections[name] = plugin.settings
    return sections


def absent_protocols() -> dict[str, str]:
    """The protocols that cannot be loaded, and why: their settings are not unknown, but cannot be understood."""
    return {point.name: problem for point in entry_points(group=PROTOCOLS) if (problem := _problem(point))}


def load_settings(
    file: Path | str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings of a node: from `file` (or the defaults), the environment and flags (`{"api.port": 0}`).

    Those of every installed protocol are known, so that what is returned is fit for `running`.
    """
    path = Path(file) if file is not None else None
    return load(
        file=path, environment=environment, flags=flags, sections=protocol_sections(), absent=absent_protocols()
    )


@cache
def _loadable() -> dict[str, ProtocolPlugin]:
    points = entry_points(group=PROTOCOLS)
    return {point.name: point.load() for point in points if not _problem(point)}  # `syncline plugins` names the others


def _problem(point: EntryPoint) -> str:
    try:
        loaded = point.load()
        if point.group == PROTOCOLS and not issubclass(loaded.settings, msgspec.Struct):
            return "it has no settings"
    except Exception as error:  # of whoever wrote it
        return f"{type(error).__name__}: {error}"
    return ""


def _fix(point: EntryPoint) -> str:
    """The line that installs what a plug-in lacks."""
    package = point.dist.name if point.dist else "syncline"
    if package != "syncline":
        return f"pip install --upgrade {package}"
    extras = metadata("syncline").get_all("Provides-Extra") or []
    return f"pip install 'syncline[{point.name if point.name in extras else 'all'}]'"
