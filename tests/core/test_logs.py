import io
import json
import logging
import re
import warnings
from collections.abc import Iterator

import pytest
import structlog

from dovetail import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_with_time_level_logger_and_values() -> None:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream)
    logs.get_logger("extender").info("pod bound", pod="a/b", devices=2)
    [event] = events(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event.pop("timestamp"))
    assert event == {"event": "pod bound", "level": "info", "logger": "extender", "pod": "a/b", "devices": 2}


def test_other_libraries_loggers_come_the_same_way() -> None:
    stream = io.StringIO()
    logs.configure(fmt="json", stream=stream)
    logging.getLogger("kopf.objects").warning("handler %s failed", "x")
    [event] = events(stream)
    assert (event["event"], event["logger"], event["level"]) == ("handler x failed", "kopf.objects", "warning")


def test_warnings_are_events_too() -> None:
    stream = io.StringIO()
    logs.configure(fmt="json", stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old call", DeprecationWarning, stacklevel=1)
    assert "old call" in str(events(stream)[0]["event"])


def test_a_traceback_stays_in_its_line() -> None:
    stream = io.StringIO()
    logs.configure(fmt="json", stream=stream)
    try:
        int("broken\nin two")
    except ValueError:
        logs.get_logger("x").exception("bad")
    [event] = events(stream)
    assert "ValueError: invalid literal" in str(event["exception"])


def test_below_the_level_nothing_is_written() -> None:
    stream = io.StringIO()
    logs.configure(level="warning", fmt="json", stream=stream)
    logs.get_logger("x").info("quiet")
    logging.getLogger("y").info("quiet")
    assert stream.getvalue() == ""


def test_a_logger_follows_the_level_and_the_values_may_be_of_any_type() -> None:
    stream = io.StringIO()
    logs.configure(level="warning", fmt="json", stream=stream)
    log = logs.get_logger("x")
    log.info("quiet")
    logging.getLogger().setLevel("INFO")
    log.info("loud", error=ValueError("a\nb"), at=1.5)
    [event] = events(stream)
    assert (event["event"], event["error"], event["at"]) == ("loud", "ValueError('a\\nb')", 1.5)


def test_a_stream_that_cannot_be_written_ends_no_program() -> None:
    stream = io.StringIO()
    logs.configure(fmt="json", stream=stream)
    log = logs.get_logger("x")
    stream.close()
    log.info("lost")


def test_configuring_anew_replaces_what_was() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure(fmt="json", stream=first)
    logs.configure(fmt="json", stream=second)
    logs.get_logger("x").info("once")
    assert first.getvalue() == ""
    assert len(events(second)) == 1


@pytest.mark.parametrize(("stream", "is_json"), [(io.StringIO(), True), (Terminal(), False)])
def test_auto_is_console_on_a_terminal_and_json_elsewhere(stream: io.StringIO, is_json: bool) -> None:
    logs.configure(fmt="auto", stream=stream)
    logs.get_logger("x").info("hello", n=1)
    assert stream.getvalue().startswith("{") is is_json
    assert "hello" in stream.getvalue()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"level": "warn"}, 'log_level is "warn", but must be debug, info, warning, error or critical; did you mean'),
        ({"fmt": "xml"}, 'log_format is "xml", but must be auto, json or console'),
    ],
)
def test_an_unknown_level_or_format_is_one_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        logs.configure(**options)
