"""Structured logs on standard error: readable on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from syncline.core.settings import LogSettings


def configure(settings: LogSettings) -> None:
    """Set up structlog for a long-running command."""
    console = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    renderer: Any = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if console else [structlog.processors.dict_tracebacks]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(settings.level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
