from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from syncline.core.errors import SettingsError
from syncline.core.settings import CORE_SECTIONS, RESERVED_VARIABLES, describe, load, variable_of
from syncline.node.plugins import protocol_sections


def write(folder: Path, text: str) -> Path:
    file = folder / "syncline.toml"
    file.write_text(text)
    return file


def test_a_flag_beats_a_variable_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    file = write(tmp_path, '[api]\nport = 1\nhost = "::1"\n[log]\nlevel = "error"\n')
    settings = load(
        file=file,
        environment={"SYNCLINE_API_PORT": "2", "SYNCLINE_LOG_LEVEL": "warning"},
        flags={"api.port": "3"},
    )
    assert (settings.api.port, settings.origin("api.port")) == (3, "flag")
    assert (settings.log.level, settings.origin("log.level")) == ("warning", "environment")
    assert (settings.api.host, settings.origin("api.host")) == ("::1", "file")
    assert (settings.api.token, settings.origin("api.token")) == ("", "default")


def test_paths_are_relative_to_the_settings_file(tmp_path: Path) -> None:
    settings = load(file=write(tmp_path, '[node]\ndata = "deep"\n'), environment={})
    assert settings.journal_file == tmp_path / "deep" / "journal.db"
    assert settings.key_file == tmp_path / "node.key"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[api]\nprot = 1\n", "unknown setting api.prot; did you mean api.port?"),
        ("[apo]\nport = 1\n", "unknown section [apo]; did you mean api?"),
        ("api = 1\n", "[api] must be a table"),
        ("[api]\nport = 70000\n", "Expected `int` <= 65535 - at `api.port`"),
        ('[api]\nport = "7070"\n', "Expected `int`, got `str` - at `api.port`"),
        ("[api\n", "the settings file cannot be read"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_the_nearest_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(file=write(tmp_path, text), environment={})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "variables", "flags", "place"),
    [
        ('[api]\nport = "x"\n', {}, {}, "syncline.toml"),
        ("[api]\nport = 1\n", {"SYNCLINE_API_PORT": "x"}, {}, "SYNCLINE_API_PORT"),
        ("[api]\nport = 1\n", {"SYNCLINE_API_PORT": "2"}, {"api.port": "x"}, "--set api.port"),
    ],
)
def test_a_wrong_value_is_told_with_where_it_is_written(
    tmp_path: Path, text: str, variables: dict[str, str], flags: dict[str, str], place: str
) -> None:
    with pytest.raises(SettingsError, match=r"Expected `int`, got `str` - at `api\.port`") as error:
        load(file=write(tmp_path, text), environment=variables, flags=flags)
    assert error.value.about.endswith(place)


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1"])
def test_a_span_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match=r"journal\.retention_hours"):
        load(environment={"SYNCLINE_JOURNAL_RETENTION_HOURS": value})


def test_settings_of_a_protocol_that_cannot_be_loaded_are_not_called_unknown(tmp_path: Path) -> None:
    absent = {"frog": "ModuleNotFoundError: No module named 'pond'"}
    file = write(tmp_path, "[frog]\ncroaks = 5\n")
    calls: list[dict[str, Any]] = [
        {"file": file, "environment": {}},
        {"environment": {"SYNCLINE_FROG_CROAKS": "1"}},
        {"environment": {}, "flags": {"frog.croaks": "1"}},
    ]
    for call in calls:
        with pytest.raises(SettingsError, match=r"of section \[frog\] cannot be loaded: .*'pond'") as error:
            load(**call, absent=absent)
        assert error.value.hint == "see `syncline plugins`"


def test_no_two_settings_share_a_variable() -> None:
    names = [each.variable for each in describe({**CORE_SECTIONS, **protocol_sections()})]
    assert sorted(names) == sorted(set(names))
    assert RESERVED_VARIABLES.isdisjoint(names)


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="did you mean SYNCLINE_API_PORT"):
        load(environment={"SYNCLINE_API_PROT": "1"})


def test_an_unknown_flag_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match=r"did you mean api\.port"):
        load(environment={}, flags={"api.prt": "1"})


def test_variables_of_other_programs_are_left_alone() -> None:
    assert load(environment={"PATH": "/bin", "SYNCLINE_CONFIG": "x"}).api.port == 7070


def test_a_list_in_a_variable_is_separated_by_commas() -> None:
    settings = load(environment={"SYNCLINE_NODE_PROTOCOLS": "sdsp, relay", "SYNCLINE_API_HOSTS": ""})
    assert settings.node.protocols == ["sdsp", "relay"]
    assert settings.api.hosts == []


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as error:
        load(file=tmp_path / "absent.toml", environment={})
    assert "syncline init" in error.value.hint


def test_a_secret_is_masked_where_settings_are_shown() -> None:
    settings = load(environment={"SYNCLINE_API_TOKEN": "hush"})
    assert ("api.token", "***", "environment") in list(settings.values())
    assert settings.api.token == "hush"


class FrogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    croaks: Annotated[int, msgspec.Meta(ge=1, description="how often it croaks")] = 3


def test_a_plug_in_brings_its_own_section(tmp_path: Path) -> None:
    file = write(tmp_path, "[frog]\ncroaks = 5\n")
    settings = load(file=file, environment={}, sections={"frog": FrogSettings})
    assert settings.section("frog", FrogSettings).croaks == 5
    with pytest.raises(SettingsError, match="unknown section"):
        load(file=file, environment={})


def test_every_setting_has_a_description_and_a_variable() -> None:
    described = describe(CORE_SECTIONS)
    assert {each.name for each in described} >= {"api.port", "journal.retention_hours", "segments.url"}
    for each in described:
        assert each.doc, each.name
        assert each.variable == variable_of(each.name)
