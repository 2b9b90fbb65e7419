"""Where a satellite is: mean elements of an OMM propagated with SGP4, as inertial state and as the point below it.

Pure: the moment is an argument. Needs the package `sgp4`. Drawing and publishing are done elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from syncline.core.errors import DecodeError, MissingError, UsageError
from syncline.protocols.sds.omm import to_keywords
from syncline.protocols.sds.rules import parse_time

EARTH_RADIUS: Final = 6378.137  # km, WGS 84
FLATTENING: Final = 1 / 298.257223563
JULIAN_UNIX: Final = 2_440_587.5  # Julian date of 1970-01-01
DAY: Final = 86_400_000_000  # microseconds
DEFAULTS: Final = {
    "CLASSIFICATION_TYPE": "U", "OBJECT_ID": "", "EPHEMERIS_TYPE": 0, "ELEMENT_SET_NO": 0, "REV_AT_EPOCH": 0,
    "BSTAR": 0.0, "MEAN_MOTION_DOT": 0.0, "MEAN_MOTION_DDOT": 0.0,
}  # fmt: skip
NEEDED: Final = (
    "NORAD_CAT_ID", "EPOCH", "MEAN_MOTION", "ECCENTRICITY", "INCLINATION", "RA_OF_ASC_NODE", "ARG_OF_PERICENTER",
    "MEAN_ANOMALY",
)  # fmt: skip


class State(msgspec.Struct, frozen=True):
    """Position (km) and velocity (km/s) in TEME, the frame SGP4 works in."""

    position: tuple[float, float, float]
    velocity: tuple[float, float, float]


class Ground(msgspec.Struct, frozen=True):
    """The point on the ground below a satellite, in degrees, and its height above it in km."""

    latitude: float
    longitude: float
    altitude: float


class Orbit:
    """One satellite, ready to be propagated."""

    def __init__(self, elements: Mapping[str, Any]) -> None:
        api, omm = _sgp4()
        fields = {**DEFAULTS, **to_keywords(dict(elements))}
        about = str(fields.get("OBJECT_NAME") or fields.get("NORAD_CAT_ID", ""))
        if missing := [name for name in NEEDED if fields.get(name) in (None, "")]:
            raise UsageError(f"propagating needs {', '.join(missing)}", about=about)
        fields["EPOCH"] = _epoch(str(fields["EPOCH"]), about)
        fields["NORAD_CAT_ID"] = 0  # the package knows numbers up to 339999 only, and no motion depends on it
        self._satellite = api.Satrec()
        try:
            omm.initialize(self._satellite, fields)
        except (ValueError, OverflowError, TypeError) as error:
            raise UsageError(f"these are no mean elements: {error}", about=about) from None

    @property
    def period(self) -> float:
        """Minutes a revolution takes."""
        return 2 * math.pi / float(self._satellite.no_kozai)

    @property
    def epoch(self) -> int:
        """When the elements were exact, in microseconds."""
        days: float = (self._satellite.jdsatepoch - JULIAN_UNIX) + self._satellite.jdsatepochF
        return round(days * DAY)

    def state(self, at: int) -> State | None:
        """The state at a moment (microseconds); None where the elements give none, as after a decay."""
        days, rest = divmod(at, DAY)
        error, position, velocity = self._satellite.sgp4(JULIAN_UNIX + days, rest / DAY)
        return None if error or not all(map(math.isfinite, position)) else State(position, velocity)

    def ground(self, at: int) -> Ground | None:
        """The point below the satellite at a moment."""
        found = self.state(at)
        return None if found is None else below(found, at)


def below(state: State, at: int) -> Ground:
    """The point on the ellipsoid below a TEME position."""
    x, y, z = state.position
    longitude = math.degrees(math.atan2(y, x) - sidereal(at))
    across, squared = math.hypot(x, y), FLATTENING * (2 - FLATTENING)
    latitude = math.atan2(z, across)
    for _ in range(5):  # converges to far below a metre
        bulge = EARTH_RADIUS / math.sqrt(1 - squared * math.sin(latitude) ** 2)
        latitude = math.atan2(z + bulge * squared * math.sin(latitude), across)
    altitude = across * math.cos(latitude) + z * math.sin(latitude) - EARTH_RADIUS**2 / bulge
    return Ground(round(math.degrees(latitude), 4), round((longitude + 540) % 360 - 180, 4), round(altitude, 3))


def sidereal(at: int) -> float:
    """Greenwich mean sidereal time in radians (IAU 1982)."""
    century = (at / DAY + JULIAN_UNIX - 2_451_545.0) / 36_525
    seconds = (
        67_310.54841 + (876_600 * 3_600 + 8_640_184.812866) * century + 0.093104 * century**2 - 6.2e-6 * century**3
    )
    return math.radians((seconds / 240) % 360)


def _epoch(text: str, about: str) -> str:
    """The time in the one form the package reads; CCSDS lets the fraction and the Z be there or not."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=parse_time(text, "EPOCH"))
    except DecodeError as error:
        raise UsageError(str(error), about=about) from None
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}"


def _sgp4() -> tuple[Any, Any]:
    try:
        from sgp4 import api, omm
    except ImportError:
        raise MissingError("propagating orbits needs the package sgp4", hint="pip install 'syncline[sds]'") from None
    return api, omm
