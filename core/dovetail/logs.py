"""Logging for every deployable: structlog, one line per event, and the standard library's."""

import logging
import sys
from collections.abc import Sequence
from typing import Final, TextIO

import structlog
from structlog.typing import Processor

from dovetail.formats.suggestions import suggestion

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
FORMATS: Final = ("auto", "json", "console")

_SHARED: Final[Sequence[Processor]] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
    structlog.processors.StackInfoRenderer(),
)


def configure(*, level: str = "info", fmt: str = "auto", stream: TextIO | None = None) -> None:
    """Set up logging for this process; a second call replaces the first.

    `auto` is console format on a terminal, else JSON. Raises `ValueError` for an unknown level or format.
    """
    _one_of("log_level", value=level, allowed=LEVELS)
    _one_of("log_format", value=fmt, allowed=FORMATS)
    stream = stream or sys.stderr
    console = fmt == "console" or (fmt == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED, processors=_rendering(console=console, colors=stream.isatty())
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose calls take an event and its values.

    For example `log.info("pod bound", pod="a/b", node="n1")`.
    """
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def _rendering(*, console: bool, colors: bool) -> list[Processor]:
    drop_own = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if console:
        return [drop_own, structlog.dev.ConsoleRenderer(colors=colors)]
    return [
        drop_own,
        # A traceback becomes one text, so that an event stays one line.
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]


def _one_of(key: str, *, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        hint = suggestion(value, known=allowed)
        raise ValueError(f'{key} is "{value}", but must be {", ".join(allowed[:-1])} or {allowed[-1]}{hint}')
