"""Scenario `decode`: OMM payloads to Arrow columns, every field and every offset checked, on one core.

The peers unpack the same payloads to objects and check nothing: the code flatc generates for Python, and npm's
spacedatastandards.org in Node. What each of them saw is compared in the same run. Everybody goes over the payloads several
times, and of each stretch of them the shortest time counts: noise only ever adds.
"""

from __future__ import annotations

import importlib.util
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from syncline.bench.peers import node_script
from syncline.bench.report import growth
from syncline.core.errors import MissingError
from syncline.protocols.sds import catalogue, columns

ROWS = 200_000
BATCH = 10_000
DISTINCT = 20_000
OBJECT_ROWS = 4_000  # the object API is slow: a sample gives its rate
OBJECT_STRETCH = 200
PASSES = 7
SEED = 2026
BAR_PYTHON, BAR_NODE = 60.0, 1.5


def run(scale: float = 1.0) -> dict[str, Any]:
    """Measure all cases; `scale` shortens or lengthens the work."""
    batches = _batches(max(int(ROWS * scale), BATCH))
    rows = sum(len(batch) for batch in batches)
    ours = _ours(batches)
    python = _object_api(batches[0])
    node = _node(batches)
    cases = [
        _case("every field, verified", rows / ours, python, "flatbuffers object API (Python)", BAR_PYTHON),
        _case("every field, verified", rows / ours, node, "spacedatastandards.org unpack (Node)", BAR_NODE),
    ]
    return {
        "scenario": "decode",
        "met": all(case["ratio"] >= case["bar"] for case in cases),
        "cases": cases,
        "rows": rows,
        "growth": _growth(batches),
    }


def _batches(rows: int) -> list[pa.Array]:
    rng, writer = random.Random(SEED), catalogue.standard("OMM").writer
    made = [writer.encode(_message(rng, number)) for number in range(min(rows, DISTINCT))]
    return [
        pa.array([made[(start + index) % len(made)] for index in range(min(BATCH, rows - start))], pa.binary())
        for start in range(0, rows, BATCH)
    ]


def _message(rng: random.Random, number: int) -> dict[str, Any]:
    """Mean elements as catalogues publish them; one in ten has a covariance and a comment."""
    message: dict[str, Any] = {
        "CCSDS_OMM_VERS": 2.0,
        "CREATION_DATE": f"2026-03-01T{number % 24:02d}:00:00.000Z",
        "ORIGINATOR": "SYNCLINE",
        "OBJECT_NAME": f"OBJECT {number}",
        "OBJECT_ID": f"{1957 + number % 70}-{number % 200:03d}A",
        "CENTER_NAME": "EARTH",
        "EPOCH": f"2026-02-28T{number % 24:02d}:{number % 60:02d}:07.{rng.randrange(10**6):06d}",
        "MEAN_MOTION": rng.uniform(1, 16),
        "ECCENTRICITY": rng.random() / 100,
        "INCLINATION": rng.uniform(0, 120),
        "RA_OF_ASC_NODE": rng.uniform(0, 360),
        "ARG_OF_PERICENTER": rng.uniform(0, 360),
        "MEAN_ANOMALY": rng.uniform(0, 360),
        "CLASSIFICATION_TYPE": "U",
        "NORAD_CAT_ID": 1 + number,
        "ELEMENT_SET_NO": 999,
        "REV_AT_EPOCH": float(rng.randrange(1, 90_000)),
        "BSTAR": rng.uniform(-1e-3, 1e-3),
        "MEAN_MOTION_DOT": rng.uniform(-1e-4, 1e-4),
    }
    if number % 10 == 0:
        message |= {"COMMENT": "with covariance", "REFERENCE_FRAME": "GCRF", "MASS": 250.5}
        message |= {name: rng.random() for name in ("CX_X", "CY_X", "CY_Y", "CZ_X", "CZ_Y", "CZ_Z")}
    return message


def _ours(batches: list[pa.Array]) -> float:
    """Seconds for all batches."""
    best = [math.inf] * len(batches)
    for _ in range(PASSES):
        for number, batch in enumerate(batches):
            start = time.perf_counter()
            found = columns.payload_columns("OMM", batch)
            best[number] = min(best[number], time.perf_counter() - start)
            assert not found.faults.any(), "honest payloads must pass"
    return sum(best)


def _object_api(batch: pa.Array) -> float:
    """Rows per second of the generated Python code, after holding its every field against our columns."""
    payloads = batch.slice(0, OBJECT_ROWS).to_pylist()
    with tempfile.TemporaryDirectory() as folder:
        unpack = _generated(Path(folder)).OMMT.InitFromPackedBuf
        _compare(payloads[:200], unpack)
        stretches = [payloads[start : start + OBJECT_STRETCH] for start in range(0, len(payloads), OBJECT_STRETCH)]
        best = [math.inf] * len(stretches)
        for _ in range(PASSES):
            for number, stretch in enumerate(stretches):
                start = time.perf_counter()
                for payload in stretch:
                    unpack(payload, 4)
                best[number] = min(best[number], time.perf_counter() - start)
    return len(payloads) / sum(best)


def _compare(payloads: list[bytes], unpack: Any) -> None:
    schema = catalogue.standard("OMM").schema
    numbers = {field.name: dict(schema.values_of(field)) for field in schema.root.fields if field.type}
    for row, payload in zip(
        columns.payload_columns("OMM", pa.array(payloads)).batch.to_pylist(), payloads, strict=True
    ):
        theirs = [each.decode() if isinstance(each, bytes) else each for each in vars(unpack(payload, 4)).values()]
        ours = [numbers[name][value] if name in numbers else value for name, value in row.items()]
        assert ours == theirs, "the object API must see the same values"


def _generated(folder: Path) -> ModuleType:
    schema = Path(catalogue.__file__).parent / "schemas" / "OMM.fbs"
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # its wheel puts it beside python
    if (flatc := shutil.which("flatc", path=beside)) is None:
        raise MissingError("this benchmark needs flatc", hint="pip install 'syncline[dev]'")
    command = [flatc, "--no-warnings", "--python", "--gen-object-api", "--gen-all", "--gen-onefile"]
    subprocess.run([*command, "-o", folder, schema], check=True)
    spec = importlib.util.spec_from_file_location("omm_generated", folder / "OMM_generated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _node(batches: list[pa.Array]) -> float:
    """Rows per second of npm's library, after comparing what it saw with our columns."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "payloads"
        file.write_bytes(b"".join(b"".join(batch.to_pylist()) for batch in batches))
        seen = node_script("sds/unpack.mjs", file, str(PASSES))
    numbers, motion, letters = 0, 0.0, 0
    for batch in batches:
        found = columns.payload_columns("OMM", batch, ["NORAD_CAT_ID", "MEAN_MOTION", "EPOCH"]).batch
        numbers += pc.sum(found["NORAD_CAT_ID"]).as_py()
        motion += pc.sum(found["MEAN_MOTION"]).as_py()
        letters += pc.sum(pc.utf8_length(found["EPOCH"])).as_py()
    assert (seen["numbers"], seen["letters"]) == (numbers, letters), "Node must see the same values"
    assert math.isclose(seen["motion"], motion, rel_tol=1e-9)
    return float(seen["rows"] / seen["seconds"])


def _growth(batches: list[pa.Array]) -> dict[str, Any]:
    """The exponent with which time grows with rows."""
    first = max(len(batches) // 16, 1)
    sizes = [first * factor for factor in (1, 4, 16) if first * factor <= len(batches)]
    seconds = [_ours(batches[:size]) for size in sizes]
    return growth("OMM payloads to columns", "batches", sizes, seconds)


def _case(name: str, ours: float, peer: float, peer_name: str, bar: float) -> dict[str, Any]:
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "peer_name": peer_name,
        "unit": "rows/s",
        "ratio": ours / peer,
        "bar": bar,
    }
