"""The demo's satellites: invented mean elements brought to the present, states propagated from them, conjunctions.

Only what they say; who publishes it, and how, is the other files' business.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from random import Random
from typing import Any, Final

from syncline.protocols.sds.omm import from_json, from_keywords
from syncline.protocols.sds.orbits import Orbit
from syncline.testing.samples import satellite_updates

EPHEMERIS_LINES: Final = 10
EPHEMERIS_STEP: Final = 60  # seconds
MINUTE: Final = 60_000_000
Fields = dict[str, Any]


class Sky:
    """The satellites as they are now. New elements are the old ones after a small error, as tracking gives them."""

    def __init__(self, chance: Random, now: int) -> None:
        self._chance = chance
        self.elements: dict[int, Fields] = {}
        planes: dict[str, int] = {}
        for update in satellite_updates():
            number, name = update["NORAD_CAT_ID"], update["OBJECT_NAME"]
            plane = planes.setdefault(name[5], len(planes))
            # The sample's planes are alike; other inclinations make the map worth looking at.
            tilt = (53.05, 70.0, 97.6, 28.5)[plane % 4]
            fields = {**update, "INCLINATION": tilt, "EPOCH": _time(now)}
            self.elements[number] = from_keywords(fields)
        self._orbits = {number: Orbit(fields) for number, fields in self.elements.items()}
        self._turn = 0

    def next_elements(self, now: int) -> Fields:
        """New mean elements of the next satellite, for this moment."""
        number = sorted(self.elements)[self._turn % len(self.elements)]
        self._turn += 1
        old, minutes = self.elements[number], (now - self._orbits[number].epoch) / MINUTE
        turned = old["MEAN_MOTION"] / 1440 * 360 * minutes
        new = {
            **old,
            "EPOCH": _time(now),
            "CREATION_DATE": _time(now)[:19] + "Z",
            "MEAN_ANOMALY": round((old["MEAN_ANOMALY"] + turned + self._chance.gauss(0, 0.01)) % 360, 4),
            "ELEMENT_SET_NO": old["ELEMENT_SET_NO"] + 1,
            "REV_AT_EPOCH": float(int(old["REV_AT_EPOCH"] + turned / 360)),
        }
        self.elements[number] = new
        self._orbits[number] = Orbit(new)
        return new

    def ephemeris(self, now: int) -> Fields:
        """The next ten minutes of one satellite as an orbit ephemeris message."""
        number = self._chance.choice(sorted(self.elements))
        orbit, elements = self._orbits[number], self.elements[number]
        moments = [now + step * EPHEMERIS_STEP * 1_000_000 for step in range(EPHEMERIS_LINES)]
        lines = [
            {"EPOCH": _time(at), **dict(zip(("X", "Y", "Z", "X_DOT", "Y_DOT", "Z_DOT"), values, strict=True))}
            for at in moments
            if (state := orbit.state(at)) is not None
            for values in [(*state.position, *state.velocity)]
        ]
        block = {
            "OBJECT": {
                "OBJECT_NAME": elements["OBJECT_NAME"],
                "OBJECT_ID": elements["OBJECT_ID"],
                "NORAD_CAT_ID": number,
            },
            "CENTER_NAME": "EARTH",
            "REFERENCE_FRAME": "TEME",
            "TIME_SYSTEM": "UTC",
            "START_TIME": _time(moments[0]),
            "STOP_TIME": _time(moments[-1]),
            "STEP_SIZE": float(EPHEMERIS_STEP),
            "EPHEMERIS_DATA_LINES": lines,
        }
        return {
            "CCSDS_OEM_VERS": 2.0,
            "CREATION_DATE": _time(now)[:19] + "Z",
            "ORIGINATOR": "SYNCLINE-DEMO",
            "EPHEMERIS_DATA_BLOCK": [block],
        }

    def positions(self, now: int) -> dict[str, dict[str, float]]:
        """Where each satellite is, by name."""
        found = {}
        for number, orbit in self._orbits.items():
            if (ground := orbit.ground(now)) is not None:
                name = self.elements[number]["OBJECT_NAME"]
                found[name] = {
                    "lat": round(ground.latitude, 2),
                    "lon": round(ground.longitude, 2),
                    "alt": round(ground.altitude, 1),
                }
        return found


def historic_elements() -> list[Fields]:
    """Mean elements of real objects, long past: what an archive holds."""
    found = from_json(_data("omm-historic.json"))
    return [{**fields, "ORIGINATOR": "SGP4-VER"} for fields in found]


def conjunctions(now: int) -> Iterator[Fields]:
    """Close approaches of the invented satellites, for ever."""
    messages = json.loads(_data("cdm-demo.json"))
    round_ = 0
    while True:
        for message in messages:
            yield {
                **message,
                "MESSAGE_ID": f"{message['MESSAGE_ID']}-{round_}",
                "CREATION_DATE": _time(now)[:19] + "Z",
                "TCA": _time(now + (20 + round_) * 3_600_000_000)[:23],
            }
        round_ += 1


def _data(name: str) -> str:
    return files("syncline.testing").joinpath(f"data/{name}").read_text()


def _time(at: int) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at):%Y-%m-%dT%H:%M:%S.%f}"
