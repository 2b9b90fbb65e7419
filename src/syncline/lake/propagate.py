"""Where objects are: mean elements propagated with SGP4, whole Arrow batches at a time.

Positions and velocities are in TEME, the frame of the theory, in km and km/s. Only elements made for SGP4 are taken; what
cannot be propagated is a row that says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import pi
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncline.core import limits
from syncline.core.errors import MissingError, UsageError
from syncline.formats.records import TIMESTAMP

ELEMENTS: Final = ("MEAN_MOTION", "ECCENTRICITY", "INCLINATION", "RA_OF_ASC_NODE", "ARG_OF_PERICENTER", "MEAN_ANOMALY")
DRAG: Final = ("BSTAR", "MEAN_MOTION_DOT", "MEAN_MOTION_DDOT")
NAMES: Final = ("subject", "OBJECT_NAME", "OBJECT_ID", "NORAD_CAT_ID", "epoch_at")  # carried over
NEEDED: Final = (*NAMES, "MEAN_ELEMENT_THEORY", *ELEMENTS, *DRAG)
THEORIES: Final = frozenset({None, "", "SGP4", "SGP"})
STATE_SCHEMA: Final = pa.schema(
    [
        pa.field("subject", pa.string()),
        pa.field("OBJECT_NAME", pa.string()),
        pa.field("OBJECT_ID", pa.string()),
        pa.field("NORAD_CAT_ID", pa.int64()),
        pa.field("epoch_at", TIMESTAMP),
        pa.field("at", TIMESTAMP),
        *(pa.field(name, pa.float64()) for name in ("x", "y", "z", "vx", "vy", "vz")),
        pa.field("error", pa.string()),
    ]
)
_DAY: Final = 86_400_000_000  # µs
_JULIAN_1970: Final = 2_440_587.5
_DAYS_1949_TO_1970: Final = 7_306.0  # SGP4 counts from 1949-12-31
_TURN: Final = 2 * pi / 1_440  # of revolutions a day, in radians a minute
Floats = npt.NDArray[np.float64]


def moments(at: datetime | Sequence[datetime]) -> list[int]:
    """Microseconds since 1970 of one or several times; without an offset they are UTC."""
    times = [at] if isinstance(at, datetime) else list(at)
    if not times:
        raise UsageError("no time to propagate to")
    aware = [time if time.tzinfo else time.replace(tzinfo=UTC) for time in times]
    return [round(time.timestamp() * 1e6) for time in aware]


def propagated(elements: pa.RecordBatch | pa.Table, at: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The state of every row's object at every time (µs since 1970), all times of an object together."""
    rows = max(limits.PROPAGATED_ROWS // max(len(at), 1), 1)
    for start in range(0, elements.num_rows, rows):
        yield _states(elements.slice(start, rows), np.asarray(at, np.int64))


def _states(elements: Any, at: npt.NDArray[np.int64]) -> pa.RecordBatch:
    api = _sgp4()
    columns = {name: elements.column(name).to_pylist() for name in NEEDED if name != "epoch_at"}
    epochs = elements.column("epoch_at").cast(pa.int64()).to_pylist()
    problems = [_problem(columns, epochs, row) for row in range(elements.num_rows)]
    good = [row for row, problem in enumerate(problems) if problem is None]
    satellites = api.SatrecArray([_satellite(api, columns, epochs[row], row) for row in good])
    days, rest = np.divmod(at, _DAY)
    codes, places, speeds = satellites.sgp4(_JULIAN_1970 + days, rest / _DAY)
    state = np.full((elements.num_rows, len(at), 6), np.nan)
    errors: list[list[str | None]] = [[problem] * len(at) for problem in problems]
    for index, row in enumerate(good):
        state[row, :, :3], state[row, :, 3:] = places[index], speeds[index]
        finite = np.isfinite(state[row]).all(axis=1).tolist()
        errors[row] = [
            api.SGP4_ERRORS[code] if code else None if known else "the elements give no place"
            for code, known in zip(codes[index].tolist(), finite, strict=True)
        ]
    flat = [text for texts in errors for text in texts]
    return _batch(elements, at, state.reshape(-1, 6), flat)


def _batch(elements: Any, at: npt.NDArray[np.int64], state: Floats, errors: list[str | None]) -> pa.RecordBatch:
    which = pa.array(np.repeat(np.arange(elements.num_rows), len(at)))
    carried = []
    for name in NAMES:
        column = elements.column(name).take(which)
        carried.append(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    absent = np.array([text is not None for text in errors], np.bool_)
    numbers = [pa.array(state[:, index], mask=absent) for index in range(6)]
    times = pa.array(np.tile(at, elements.num_rows)).cast(TIMESTAMP)
    arrays = [*carried, times, *numbers, pa.array(errors, pa.string())]
    return pa.RecordBatch.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, STATE_SCHEMA, strict=True)], schema=STATE_SCHEMA
    )


def _problem(columns: dict[str, list[Any]], epochs: list[int | None], row: int) -> str | None:
    if epochs[row] is None:
        return "no epoch"
    if columns["MEAN_ELEMENT_THEORY"][row] not in THEORIES:
        return f"elements of {columns['MEAN_ELEMENT_THEORY'][row]}, not of SGP4"
    if not columns["MEAN_MOTION"][row]:
        return "no mean motion"
    absent = [name for name in ELEMENTS if columns[name][row] is None]
    return f"no {absent[0]}" if absent else None


def _satellite(api: Any, columns: dict[str, list[Any]], epoch: int, row: int) -> Any:
    def angle(name: str) -> float:
        return float(np.deg2rad(columns[name][row]))

    motion = columns["MEAN_MOTION"][row]
    bstar, first, second = (columns[name][row] or 0.0 for name in DRAG)
    satellite = api.Satrec()
    satellite.sgp4init(
        api.WGS72,
        "i",
        0,  # the number plays no part, and new ones do not fit
        _DAYS_1949_TO_1970 + epoch / _DAY,
        bstar,
        first * _TURN / 1_440,
        second * _TURN / 1_440**2,
        columns["ECCENTRICITY"][row],
        angle("ARG_OF_PERICENTER"),
        angle("INCLINATION"),
        angle("MEAN_ANOMALY"),
        motion * _TURN,
        angle("RA_OF_ASC_NODE"),
    )
    return satellite


def _sgp4() -> Any:
    try:
        from sgp4 import api
    except ImportError:
        raise MissingError(
            "the package sgp4 is not installed", hint="run `pip install 'syncline[spark]'` (executors need it too)"
        ) from None
    return api
