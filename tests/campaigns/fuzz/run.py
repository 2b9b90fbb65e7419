"""Fuzzes one target in a process of its own: `python -m tests.campaigns.fuzz.run TARGET RUNS SEED CORPUS`.

Anything but a typed error ends the process with libFuzzer's report; the input that did it is left in the corpus folder.
The fuzzing happens in a fork: Linux hands a starter's peak memory on to what it executes, but not to what it forks, and
the peak is one of the figures.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

if fuzzer := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(fuzzer, 0)[1]))

import atheris

# What atheris traces of a comparison it keeps: with arrays, tens of kilobytes for every input. Rooms that compare whole
# columns run as they are; the row by row code they are held against is traced.
COLUMNS = [f"syncline.protocols.{name}.columns" for name in ("relay", "sds", "sdsp", "shrex", "svs")]

with atheris.instrument_imports(include=["syncline"], exclude=[*COLUMNS, "syncline.formats.flatbuffers.columns"]):
    from syncline.core.errors import SynclineError
    from tests.campaigns.fuzz.targets import TARGETS, seeds

    TARGET = TARGETS[sys.argv[1]]()


def one(data: bytes) -> None:
    try:
        TARGET(data)
    except SynclineError:
        return


def main() -> None:
    name, runs, seed, corpus = sys.argv[1:5]
    folder = Path(corpus)
    for number, content in enumerate(seeds(name)):
        (folder / f"seed-{number}").write_bytes(content)
    flags = [
        f"-runs={runs}", f"-seed={seed}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=1024", "-verbosity=0",
        "-print_final_stats=1", f"-artifact_prefix={folder}/",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *flags, corpus], one)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.stdout.write(json.dumps({"target": name, "runs": int(runs), "memory_before_kb": before}) + "\n")
    sys.stdout.flush()
    atheris.Fuzz()


if __name__ == "__main__":
    main()
