"""Finds protocols and other plug-ins through entry points, the built-in ones too.

A plug-in that cannot be loaded (a library it needs is missing) is reported with the reason, never fatal by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
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
    """One installed plug-in, and why it cannot be used, if so."""

    group: str
    name: str
    package: str
    version: str
    target: str
    problem: str = ""


def installed() -> list[Found]:
    """Every plug-in of every group, loaded to see whether it works."""
    found = []
    for group in GROUPS:
        for point in sorted(entry_points(group=group), key=lambda each: each.name):
            package = point.dist.name if point.dist else ""
            version = point.dist.version if point.dist else ""
            found.append(Found(group, point.name, package, version, point.value, _problem(point)))
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
        try:
            plugins[name] = points[name].load()
        except ImportError as error:
            raise MissingError(
                f"protocol {name} needs a package that is not installed: {error}",
                hint=f"pip install 'syncline[{name}]' or syncline[all]",
            ) from None
    return plugins


def protocol_sections() -> Mapping[str, type[msgspec.Struct]]:
    """The settings sections that installed protocols bring."""
    sections = {}
    for name, plugin in _loadable().items():
        if name in CORE_SECTIONS:
            raise UsageError(f"a protocol may not be called {name!r}: the section is taken")
        sections[name] = plugin.settings
    return sections


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
    return load(file=path, environment=environment, flags=flags, sections=protocol_sections())


@cache
def _loadable() -> dict[str, ProtocolPlugin]:
    plugins: dict[str, Any] = {}
    for point in entry_points(group=PROTOCOLS):
        try:
            plugins[point.name] = point.load()
        except ImportError:
            continue  # `syncline plugins` names it with the reason
    return plugins


def _problem(point: EntryPoint) -> str:
    try:
        point.load()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
