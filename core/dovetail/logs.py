"""Logging for every deployable: structlog, one line per event, and the standard library's."""

import json
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from dovetail.formats.suggestions import suggestion

# structlog, with rich and pygments behind it, takes 0.1 s, which a command that logs nothing does without.
if TYPE_CHECKING:
    import structlog
    from structlog.typing import Processor

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
FORMATS: Final = ("auto", "json", "console")


def configure(*, level: str = "info", fmt: str = "auto", stream: TextIO | None = None) -> None:
    """Set up logging for this process; a second call replaces the first.

    `auto` is console format on a terminal, else JSON. Raises `ValueError` for an unknown level or format.
    """
    import structlog  # noqa: PLC0415

    _one_of("log_level", value=level, allowed=LEVELS)
    _one_of("log_format", value=fmt, allowed=FORMATS)
    stream = stream or sys.stderr
    shared: Sequence[Processor] = (
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
        structlog.processors.StackInfoRenderer(),
    )
    console = fmt == "console" or (fmt == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(console=console, colors=stream.isatty()),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *_rendering(console=console, colors=stream.isatty()),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=_Lines,
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> "structlog.stdlib.BoundLogger":
    """A logger whose calls take an event and its values.

    For example `log.info("pod bound", pod="a/b", node="n1")`.
    """
    return cast("structlog.stdlib.BoundLogger", _Logger(name))


class _Logger:
    """structlog's logger of that name, which the first call makes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._made: Any = None

    def __getattr__(self, method: str) -> Any:
        if self._made is None:
            import structlog  # noqa: PLC0415

            self._made = structlog.stdlib.get_logger(self._name)
        return getattr(self._made, method)


class _Lines:
    """What our loggers write to: the stream of the root logger's handler, at the level of the logger `name`.

    The standard library's own way, with a record, a search for the caller and a formatter, takes three fifths of a
    line's time: 4 % of the extender's CPU for a pod.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._logger = logging.getLogger(name)

    @property
    def disabled(self) -> bool:
        """Whether the logger is off."""
        return self._logger.disabled

    def getEffectiveLevel(self) -> int:  # noqa: N802 - the name in the standard library
        """The level from which lines are written; the configuration may change it at any time."""
        return self._logger.getEffectiveLevel()

    def write(self, line: str) -> None:
        """Write one line."""
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler):
                with handler.lock or nullcontext():
                    try:
                        handler.stream.write(f"{line}\n")
                        handler.flush()
                    except (OSError, ValueError):
                        # As in the standard library, a full disk or a closed stream ends no program.
                        continue

    debug = info = warning = error = critical = exception = write


def _rendering(*, console: bool, colors: bool) -> "list[Processor]":
    import structlog  # noqa: PLC0415

    if console:
        return [structlog.dev.ConsoleRenderer(colors=colors)]
    # A traceback becomes one text, so that an event stays one line.
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_as_json)]


def _as_json(event: object, **_options: object) -> str:
    return _JSON.encode(event)


# `json.dumps` with a fallback builds an encoder for each line.
_JSON: Final = json.JSONEncoder(default=repr)


def _one_of(key: str, *, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        hint = suggestion(value, known=allowed)
        raise ValueError(f'{key} is "{value}", but must be {", ".join(allowed[:-1])} or {allowed[-1]}{hint}')
