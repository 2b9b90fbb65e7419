"""The units in which the Space Data Standards state their fields, by field name, as the CCSDS messages they follow have
them. A field whose unit its publisher chooses, or that has none, is not listed.
"""

from __future__ import annotations

from typing import Final

_KM: Final = "km"
_KM_S: Final = "km/s"
_DEGREES: Final = "°"
_METRES: Final = "m"
_METRES_S: Final = "m/s"
_ISO: Final = "ISO 8601 text"

OMM_UNITS: Final[dict[str, str]] = {
    "CREATION_DATE": _ISO,
    "EPOCH": _ISO,
    "REFERENCE_FRAME_EPOCH": _ISO,
    "SEMI_MAJOR_AXIS": _KM,
    "MEAN_MOTION": "rev/day",
    "INCLINATION": _DEGREES,
    "RA_OF_ASC_NODE": _DEGREES,
    "ARG_OF_PERICENTER": _DEGREES,
    "MEAN_ANOMALY": _DEGREES,
    "GM": "km³/s²",
    "MASS": "kg",
    "SOLAR_RAD_AREA": "m²",
    "DRAG_AREA": "m²",
    "REV_AT_EPOCH": "rev",
    "BSTAR": "1/Earth radii",
    "MEAN_MOTION_DOT": "rev/day²",
    "MEAN_MOTION_DDOT": "rev/day³",
    **{f"C{row}_{column}": "km²" for row, column in ("XX", "YX", "YY", "ZX", "ZY", "ZZ")},
    **{f"C{row}_DOT_{column}": "km²/s" for row in "XYZ" for column in "XYZ"},
    **{f"C{row}_DOT_{column}_DOT": "km²/s²" for row, column in ("XX", "YX", "YY", "ZX", "ZY", "ZZ")},
}

_CDM_OBJECT: Final[dict[str, str]] = {
    **dict.fromkeys(("X", "Y", "Z"), _KM),
    **{f"{axis}_DOT": _KM_S for axis in ("X", "Y", "Z")},
    "AREA_PC": "m²",
    "AREA_DRG": "m²",
    "AREA_SRP": "m²",
    "CR_AREA_OVER_MASS": "m²/kg",
    "THRUST_ACCELERATION": "m/s²",
    "SEDR": "W/kg",
    "TIME_LASTOB_START": _ISO,
    "TIME_LASTOB_END": _ISO,
    "RECOMMENDED_OD_SPAN": "d",
    "ACTUAL_OD_SPAN": "d",
    "RESIDUALS_ACCEPTED": "%",
    **{f"C{pair}": "m²" for pair in ("R_R", "T_R", "T_T", "N_R", "N_T", "N_N")},
    **{f"C{row}DOT_{column}": "m²/s" for row in "RTN" for column in "RTN"},
    **{f"C{pair}": "m²/s²" for pair in ("RDOT_RDOT", "TDOT_RDOT", "TDOT_TDOT", "NDOT_RDOT", "NDOT_TDOT", "NDOT_NDOT")},
}

CDM_UNITS: Final[dict[str, str]] = {
    "CREATION_DATE": _ISO,
    "TCA": _ISO,
    "MISS_DISTANCE": _METRES,
    "RELATIVE_SPEED": _METRES_S,
    **{f"RELATIVE_POSITION_{axis}": _METRES for axis in "RTN"},
    **{f"RELATIVE_VELOCITY_{axis}": _METRES_S for axis in "RTN"},
    "START_SCREEN_PERIOD": _ISO,
    "STOP_SCREEN_PERIOD": _ISO,
    "SCREEN_ENTRY_TIME": _ISO,
    "SCREEN_EXIT_TIME": _ISO,
    **{f"SCREEN_VOLUME_{axis}": _METRES for axis in "XYZ"},
    **{f"OBJECT{number}__{name}": unit for number in (1, 2) for name, unit in _CDM_OBJECT.items()},
}

CAT_UNITS: Final[dict[str, str]] = {
    "LAUNCH_DATE": _ISO,
    "DECAY_DATE": _ISO,
    "PERIOD": "min",
    "INCLINATION": _DEGREES,
    "APOGEE": _KM,
    "PERIGEE": _KM,
    "RCS": "m²",
    "MASS": "kg",
    "SIZE": _METRES,
}

UNITS: Final[dict[str, dict[str, str]]] = {"OMM": OMM_UNITS, "CDM": CDM_UNITS, "CAT": CAT_UNITS}


def unit_of(schema: str, column: str) -> str:
    """The unit of a column, empty if there is none or nobody says."""
    return UNITS.get(schema, {}).get(column, "")
