"""Which class of machine a figure was measured on: figures are compared only within one."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine_class() -> str:
    """Cores, processor, memory and interpreter, in one line."""
    version = ".".join(platform.python_version_tuple()[:2])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} × {_processor()}, {_memory()}, {platform.system()}, Python {version}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "memory unknown"
    return f"{round(size / 2**30)} GiB"
