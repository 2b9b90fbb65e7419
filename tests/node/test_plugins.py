from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from syncline.core.errors import MissingError, UsageError
from syncline.node import plugins

BROKEN = """
frog = frogs:plugin
toad = frogs:nothing
newt = newts:plugin
"""


@pytest.fixture
def _frogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's package with three protocols, none of which can be loaded, each for another reason."""
    (tmp_path / "frogs.py").write_text("class plugin:\n    settings = int\n")
    (tmp_path / "newts.py").write_text("import no_such_package\n")
    about = tmp_path / "frogs-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: frogs\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[syncline.protocols]{BROKEN}")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins._loadable.cache_clear()
    monkeypatch.setattr(plugins, "_loadable", plugins._loadable.__wrapped__)


@pytest.mark.usefixtures("_frogs")
def test_a_plug_in_that_cannot_be_loaded_is_named_with_reason_and_cure_and_stops_nobody() -> None:
    found = {each.name: each for each in plugins.installed() if each.package == "frogs"}
    assert found["frog"].problem == "it has no settings"
    assert found["toad"].problem.startswith("AttributeError: ")
    assert found["newt"].problem == "ModuleNotFoundError: No module named 'no_such_package'"
    assert {each.fix for each in found.values()} == {"pip install --upgrade frogs"}
    assert found.keys().isdisjoint(plugins.protocol_sections())
    assert found.keys() == plugins.absent_protocols().keys()
    assert "sdsp" in plugins.protocol_plugins()


@pytest.mark.usefixtures("_frogs")
def test_a_plug_in_asked_for_by_name_must_load() -> None:
    with pytest.raises(MissingError, match="protocol newt cannot be loaded: ModuleNotFoundError") as error:
        plugins.protocol_plugins(["newt"])
    assert error.value.hint == "pip install --upgrade frogs"
    with pytest.raises(UsageError, match="there is no protocol 'eel'"):
        plugins.protocol_plugins(["eel"])


@pytest.mark.parametrize(("name", "extra"), [("relay", "relay"), ("sds", "sds"), ("svs", "all"), ("shrex", "all")])
def test_the_cure_names_an_extra_that_there_is(name: str, extra: str) -> None:
    [point] = entry_points(group=plugins.PROTOCOLS, name=name)
    assert plugins._fix(point) == f"pip install 'syncline[{extra}]'"
