from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from syncline.core.errors import UsageError
from syncline.protocols.sds.omm import from_keywords, from_tle
from syncline.protocols.sds.orbits import Orbit, State, below, sidereal
from syncline.testing.samples import satellite_updates

VANGUARD = """\
1 00005U 58002B   00179.78495062  .00000023  00000-0  28098-4 0  4753
2 00005  34.2682 348.7242 1859667 331.7664  19.3264 10.82419157413667
"""  # the first case of the public SGP4 verification set


def micros(year: int, month: int, day: int, hour: int = 0) -> int:
    return int(datetime(year, month, day, hour, tzinfo=UTC).timestamp()) * 1_000_000


def test_a_state_is_that_of_the_published_verification_run() -> None:
    [elements] = from_tle(VANGUARD)
    orbit = Orbit(elements)
    at_epoch, after_six_hours = orbit.state(orbit.epoch), orbit.state(orbit.epoch + 360 * 60_000_000)
    assert at_epoch is not None
    assert after_six_hours is not None
    assert at_epoch.position == pytest.approx((7022.46529266, -1400.08296755, 0.03995155), abs=0.01)
    assert at_epoch.velocity == pytest.approx((1.893841015, 6.405893759, 4.534807250), abs=1e-5)
    assert after_six_hours.position == pytest.approx((-7154.03120202, -3783.17682504, -3536.19412294), abs=0.01)


def test_sidereal_time_is_that_of_the_almanac() -> None:
    assert math.degrees(sidereal(micros(2000, 1, 1, 12))) == pytest.approx(280.46061837, abs=1e-6)
    assert math.degrees(sidereal(micros(1987, 4, 10, 0))) == pytest.approx(197.693195, abs=1e-5)


def test_below_the_pole_and_the_equator_are_the_pole_and_the_equator() -> None:
    now = micros(2026, 3, 1)
    pole = below(State((0.0, 0.0, 6_856.7523), (0.0, 0.0, 0.0)), now)
    assert pole.latitude == 90.0
    assert pole.altitude == pytest.approx(500.0, abs=0.001)
    turn = sidereal(now)
    greenwich = below(State((6_878.137 * math.cos(turn), 6_878.137 * math.sin(turn), 0.0), (0.0, 0.0, 0.0)), now)
    assert (greenwich.latitude, greenwich.longitude, greenwich.altitude) == (0.0, 0.0, 500.0)


def test_a_catalogue_number_too_long_for_the_package_does_not_matter() -> None:
    update = satellite_updates()[0]
    assert update["NORAD_CAT_ID"] == 990001
    orbit = Orbit(from_keywords(update))
    ground = orbit.ground(orbit.epoch)
    assert ground is not None
    assert (ground.latitude, ground.longitude, round(ground.altitude)) == (33.2242, -141.146, 551)
    assert orbit.period == pytest.approx(95.6, abs=0.1)


def test_elements_that_lack_something_are_named() -> None:
    with pytest.raises(UsageError, match="propagating needs EPOCH, INCLINATION"):
        Orbit({name: value for name, value in satellite_updates()[0].items() if name not in ("EPOCH", "INCLINATION")})


@pytest.mark.parametrize("text", ["2026-03-01T00:45:59", "2026-03-01T00:45:59Z", "2026-03-01T00:45:59.000000"])
def test_an_epoch_is_read_in_any_form_the_standard_allows(text: str) -> None:
    assert Orbit({**satellite_updates()[0], "EPOCH": text}).epoch == micros(2026, 3, 1) + 2_759_000_000


def test_an_epoch_that_is_no_time_is_refused() -> None:
    with pytest.raises(UsageError, match="EPOCH"):
        Orbit({**satellite_updates()[0], "EPOCH": "yesterday"})
