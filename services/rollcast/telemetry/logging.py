"""Structured log lines: readable on a terminal, JSON in a pod (ROLLCAST_LOG_FORMAT=json)."""

import logging
import os
import sys
from typing import cast

import structlog


def configure_logging(service: str) -> None:
    """Send this process's log lines to standard error, each with the time
    and the service's name.
    """
    as_json = os.environ.get("ROLLCAST_LOG_FORMAT") == "json"
    renderer = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info
            if as_json
            else structlog.processors.StackInfoRenderer(),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)


def get_logger() -> structlog.stdlib.BoundLogger:
    """The process's logger: `log.info("joined", epoch=3)`."""
    return cast(structlog.stdlib.BoundLogger, structlog.get_logger())
