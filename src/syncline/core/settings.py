"""Settings: a TOML file, overridden by `SYNCLINE_*` variables, overridden by flags, with the origin of each value kept.

A section is a msgspec struct whose fields carry their documentation and bounds; sections come from here and from
protocol plug-ins. Unknown keys are refused with the nearest name. What a setting means to its user is not decided here.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from syncline.core import limits
from syncline.core.errors import SettingsError

ENVIRONMENT_PREFIX: Final = "SYNCLINE_"
FILE_NAME: Final = "syncline.toml"
RESERVED_VARIABLES: Final = frozenset(
    {
        "SYNCLINE_CONFIG",  # names the settings file; read by the command line
        "SYNCLINE_CRASH_AT",  # arms a crash point in tests; read by core/crash.py
        "SYNCLINE_LONG",  # asks the fault campaigns for their full figures; read by tests
        "SYNCLINE_FIGURES",  # names the file they write their figures to; read by tests
    }
)

_LIST: Final = "`syncline config` lists all settings"

Origin = Literal["default", "file", "environment", "flag"]
Bytes = Annotated[int, Meta(ge=0)]
S = TypeVar("S", bound=msgspec.Struct)


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node itself."""

    data: Annotated[str, Meta(description="folder of journal, segments and tables, relative to the settings file")] = (
        "data"
    )
    key: Annotated[str, Meta(description="file of the node's private key, relative to the settings file")] = "node.key"
    name: Annotated[str, Meta(max_length=64, description="what people call this node; its page shows it")] = ""
    protocols: Annotated[
        list[str] | None, Meta(description="protocols to run; absent: every installed one whose needs are met")
    ] = None
    public_url: Annotated[str, Meta(description="address others reach the HTTP API at; needed to offer historyUri")] = (
        ""
    )
    clock_urls: Annotated[
        list[str], Meta(description="HTTP addresses whose Date header `syncline doctor` compares our clock with")
    ] = []


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP API and the page."""

    host: Annotated[str, Meta(description="address to listen on; anything but loopback needs api.token")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="port to listen on; 0 takes a free one")] = 7070
    token: Annotated[str, Meta(description="bearer token that every request must carry; secret")] = ""
    hosts: Annotated[
        list[str],
        Meta(
            description="further Host names to answer to, beside loopback, the address listened on and node.public_url"
        ),
    ] = []
    origins: Annotated[list[str], Meta(description="web origins, beside our own page, that may call the API")] = []


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The durable journal."""

    retention_hours: Annotated[
        float,
        Meta(gt=0, le=1_000_000, description="how long sealed records stay in the journal after they were received"),
    ] = 168.0
    refused_per_peer_hour: Annotated[
        int,
        Meta(ge=0, description="rejected and ignored records kept per peer and hour; further ones are only counted"),
    ] = limits.REFUSED_PER_PEER_HOUR
    disk_free_rejects: Annotated[
        Bytes, Meta(description="free bytes on disk below which rejects and ignores are no longer kept")
    ] = limits.DISK_FREE_REJECTS
    disk_free_all: Annotated[Bytes, Meta(description="free bytes on disk below which nothing is taken in")] = (
        limits.DISK_FREE_ALL
    )


class SegmentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sealed segments, which the lake reads."""

    url: Annotated[
        str, Meta(description="where segments go: empty for data/segments, else an object store (s3://bucket/prefix)")
    ] = ""
    seconds: Annotated[float, Meta(gt=0, description="seal at least this often while records come in")] = float(
        limits.SEGMENT_SECONDS
    )
    bytes: Annotated[int, Meta(ge=4096, description="seal as soon as this many raw bytes wait")] = limits.SEGMENT_BYTES


class LakeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tables, made from segments by Spark, and queries over them."""

    url: Annotated[
        str, Meta(description="where tables are: empty for data/lake, else a shared path or object store")
    ] = ""
    checkpoints: Annotated[
        str, Meta(description="where Spark remembers which segments it has seen: empty for data/checkpoints")
    ] = ""
    master: Annotated[str, Meta(description="Spark master: local[*], spark://host:port, yarn, k8s://…")] = "local[*]"
    seconds: Annotated[float, Meta(gt=0, description="how often a following pipeline looks for new segments")] = 10.0
    batch_segments: Annotated[
        int, Meta(ge=1, le=100_000, description="segments one batch lands; more need more memory in the driver")
    ] = limits.LAKE_BATCH_SEGMENTS
    buckets: Annotated[
        int, Meta(ge=1, le=65_536, description="partitions of each new keyed or state table; old tables keep theirs")
    ] = limits.LAKE_BUCKETS
    keep_versions_hours: Annotated[
        int, Meta(ge=1, description="how long vacuum keeps files of older table versions, and orphans of killed runs")
    ] = limits.LAKE_KEEP_VERSIONS_HOURS
    records_days: Annotated[
        int, Meta(ge=0, description="days of records and rejected that vacuum keeps; 0 keeps all")
    ] = 0
    segments_days: Annotated[
        int, Meta(ge=0, description="days that vacuum keeps segments which all tables hold; 0 keeps all")
    ] = 0
    query_seconds: Annotated[float, Meta(gt=0, description="time after which an interactive query is stopped")] = (
        limits.QUERY_SECONDS
    )
    query_memory: Annotated[Bytes, Meta(description="bytes of memory an interactive query may use")] = (
        limits.QUERY_MEMORY
    )
    query_rows: Annotated[int, Meta(ge=1, description="rows an interactive query may return")] = limits.QUERY_ROWS


class Libp2pSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node's libp2p host, which SDS and ShrEx share. It runs only if one of them does."""

    listen: Annotated[list[str], Meta(description="multiaddrs to listen on; port 0 takes a free one")] = msgspec.field(
        default_factory=lambda: ["/ip4/127.0.0.1/tcp/7071"]
    )
    announce: Annotated[list[str], Meta(description="multiaddrs others reach us at, if not those we listen on")] = []
    bootstrap: Annotated[
        list[str], Meta(description="peers to stay connected to, as multiaddrs that end in /p2p/PEERID")
    ] = []
    connections: Annotated[int, Meta(ge=1, description="connections in all")] = limits.CONNECTIONS
    connections_per_address: Annotated[
        int, Meta(ge=1, description="connections from one address (IPv6: one /64 network)")
    ] = limits.CONNECTIONS_PER_ADDRESS
    slow_seconds: Annotated[
        float, Meta(gt=0, description="a peer that takes nothing from us for so long is cut as a slow reader")
    ] = limits.SLOW_PEER_SECONDS


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Logs, which go to standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="least severe level shown")] = (
        "info"
    )
    format: Annotated[
        Literal["auto", "console", "json"], Meta(description="auto: console on a terminal, JSON elsewhere")
    ] = "auto"


CORE_SECTIONS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "node": NodeSettings,
    "api": ApiSettings,
    "journal": JournalSettings,
    "segments": SegmentSettings,
    "libp2p": Libp2pSettings,
    "lake": LakeSettings,
    "log": LogSettings,
}
SECRETS: Final = frozenset({"api.token", "shrex.headers_token", "svs.command_keys", "svs.keys", "svs.signers"})


class Described(msgspec.Struct, frozen=True):
    """One setting as documentation and `syncline config` show it."""

    name: str
    type: str
    default: Any
    doc: str
    variable: str


class Settings:
    """All sections with their values, and where each value came from."""

    def __init__(self, sections: Mapping[str, msgspec.Struct], origins: Mapping[str, Origin], folder: Path) -> None:
        self._sections = dict(sections)
        self._origins = dict(origins)
        self.folder = folder  # what relative paths are relative to

    @property
    def node(self) -> NodeSettings:
        return self.section("node", NodeSettings)

    @property
    def api(self) -> ApiSettings:
        return self.section("api", ApiSettings)

    @property
    def journal(self) -> JournalSettings:
        return self.section("journal", JournalSettings)

    @property
    def segments(self) -> SegmentSettings:
        return self.section("segments", SegmentSettings)

    @property
    def lake(self) -> LakeSettings:
        return self.section("lake", LakeSettings)

    @property
    def libp2p(self) -> Libp2pSettings:
        return self.section("libp2p", Libp2pSettings)

    @property
    def log(self) -> LogSettings:
        return self.section("log", LogSettings)

    def section(self, name: str, kind: type[S]) -> S:
        value = self._sections[name]
        assert isinstance(value, kind)
        return value

    def plugin_section(self, name: str) -> msgspec.Struct:
        if name not in self._sections:
            raise SettingsError(f"no section [{name}] was loaded", hint="load settings with syncline.load_settings")
        return self._sections[name]

    def origin(self, name: str) -> Origin:
        return self._origins.get(name, "default")

    def values(self) -> Iterator[tuple[str, Any, Origin]]:
        """Every setting with its value (secrets masked) and origin."""
        for section, struct in self._sections.items():
            for field in struct.__struct_fields__:
                name = f"{section}.{field}"
                value = getattr(struct, field)
                yield name, ("***" if name in SECRETS and value else value), self.origin(name)

    @property
    def data(self) -> Path:
        return self.folder / self.node.data

    @property
    def key_file(self) -> Path:
        return self.folder / self.node.key

    @property
    def journal_file(self) -> Path:
        return self.data / "journal.db"

    @property
    def segments_folder(self) -> Path:
        return self.data / "segments"

    @property
    def lake_folder(self) -> Path:
        return self.data / "lake"

    @property
    def checkpoints_folder(self) -> Path:
        return self.data / "checkpoints"


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    sections: Mapping[str, type[msgspec.Struct]] | None = None,
    absent: Mapping[str, str] | None = None,
) -> Settings:
    """Read settings from `file` (or defaults, if None), the environment and flags (`{"api.port": 0}`).

    `sections` are those of protocol plug-ins, beside the core ones; `absent` says why others cannot be loaded.
    """
    known = _Known({**CORE_SECTIONS, **(sections or {})}, absent or {})
    values: dict[str, dict[str, Any]] = {name: {} for name in known}
    origins: dict[str, Origin] = {}
    for name, value in _from_file(file, known):
        _put(values, origins, name, value, "file")
    for name, text in _from_environment(os.environ if environment is None else environment, known):
        _put(values, origins, name, _parse(name, text, known), "environment")
    for name, value in (flags or {}).items():
        known.check(name, about=f"--set {name}")
        _put(values, origins, name, _parse(name, value, known) if isinstance(value, str) else value, "flag")
    built = {name: _build(name, kind, values[name], origins, file) for name, kind in known.items()}
    return Settings(built, origins, file.resolve().parent if file else Path.cwd())


def describe(sections: Mapping[str, type[msgspec.Struct]]) -> list[Described]:
    """Every setting of these sections, for documentation."""
    found = []
    for section, kind in sections.items():
        defaults = kind()
        for field, hint in get_type_hints(kind, include_extras=True).items():
            name = f"{section}.{field}"
            found.append(Described(name, _type_text(hint), getattr(defaults, field), _doc(hint), variable_of(name)))
    return found


def variable_of(name: str) -> str:
    """The environment variable that sets `section.key`."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")


class _Known(dict[str, type[msgspec.Struct]]):
    """The sections there are, by name, and why others are not (`absent`)."""

    def __init__(self, sections: Mapping[str, type[msgspec.Struct]], absent: Mapping[str, str]) -> None:
        super().__init__(sections)
        self._absent = absent

    def check(self, name: str, about: str) -> None:
        """Raise SettingsError unless there is a setting of this name."""
        names = [f"{section}.{field}" for section, kind in self.items() for field in kind.__struct_fields__]
        if name not in names:
            self.check_section(name.partition(".")[0], about)
            raise SettingsError(f"unknown setting {name}{_nearest(name, names)}", hint=_LIST, about=about)

    def check_section(self, section: str, about: str) -> None:
        """Raise SettingsError if the section belongs to a plug-in that cannot be loaded."""
        if section in self._absent:
            raise SettingsError(
                f"the protocol of section [{section}] cannot be loaded: {self._absent[section]}",
                hint="see `syncline plugins`",
                about=about,
            )

    def check_variable(self, variable: str) -> None:
        """The same for a variable of such a section."""
        for section in self._absent:
            if variable.startswith(variable_of(f"{section}.")):
                self.check_section(section, variable)


def _from_file(file: Path | None, known: _Known) -> Iterator[tuple[str, Any]]:
    if file is None:
        return
    try:
        document = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise SettingsError("there is no settings file", hint="run `syncline init`", about=str(file)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"the settings file cannot be read: {error}", about=str(file)) from None
    for section, table in document.items():
        if section not in known:
            known.check_section(section, about=str(file))
            raise SettingsError(f"unknown section [{section}]{_nearest(section, known)}", hint=_LIST, about=str(file))
        if not isinstance(table, dict):
            raise SettingsError(f"[{section}] must be a table", about=str(file))
        for key, value in table.items():
            known.check(f"{section}.{key}", about=str(file))
            yield f"{section}.{key}", value


def _from_environment(environment: Mapping[str, str], known: _Known) -> Iterator[tuple[str, str]]:
    variables = {variable_of(f"{s}.{f}"): f"{s}.{f}" for s, kind in known.items() for f in kind.__struct_fields__}
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in RESERVED_VARIABLES:
            if variable not in variables:
                known.check_variable(variable)
                raise SettingsError(f"unknown variable {variable}{_nearest(variable, variables)}", hint=_LIST)
            yield variables[variable], text


def _nearest(name: str, names: Any) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _put(values: dict[str, dict[str, Any]], origins: dict[str, Origin], name: str, value: Any, origin: Origin) -> None:
    section, field = name.split(".", 1)
    values[section][field] = value
    origins[name] = origin


def _parse(name: str, text: str, known: Mapping[str, type[msgspec.Struct]]) -> Any:
    """Text of a variable or flag: lists are comma-separated; everything else is left to msgspec's lax conversion."""
    section, field = name.split(".", 1)
    hint = _bare(get_type_hints(known[section], include_extras=True)[field])
    if any(get_origin(part) is list for part in (hint, *get_args(hint))):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _build(
    section: str,
    kind: type[msgspec.Struct],
    values: dict[str, Any],
    origins: Mapping[str, Origin],
    file: Path | None,
) -> msgspec.Struct:
    text = {field for field in values if origins[f"{section}.{field}"] in ("environment", "flag")}
    try:
        exact = {field: value for field, value in values.items() if field not in text}
        msgspec.convert(exact, kind)
        return msgspec.convert(values, kind, strict=not text)
    except msgspec.ValidationError as error:
        message = str(error).replace("`$.", f"`{section}.")
        field = re.search(r"`\$\.(\w+)", str(error))
        name = f"{section}.{field[1]}" if field else section
        raise SettingsError(message, hint="see docs/settings.md", about=_place(name, origins, file)) from None


def _place(name: str, origins: Mapping[str, Origin], file: Path | None) -> str:
    """Where the value of a setting is written."""
    places = {"file": str(file), "environment": variable_of(name), "flag": f"--set {name}"}
    return places.get(origins.get(name, "default"), name)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _doc(hint: Any) -> str:
    notes = [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Meta)]
    return next((note.description for note in notes if note.description), "")


def _type_text(hint: Any) -> str:
    bare = _bare(hint)
    if get_origin(bare) is Literal:
        return " | ".join(repr(value) for value in get_args(bare))
    return bare.__name__ if isinstance(bare, type) and get_origin(bare) is None else str(bare)
