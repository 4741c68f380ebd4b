"""Each call of the SDK is an operation of the gateway's document: its path, its query, its body and its answer."""

import inspect
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from dovetail.api.meta import MessageDetail
from dovetail.sdk import errors
from dovetail.sdk.calls import call, v1, v2, v3
from dovetail.sdk.calls.call import Call
from dovetail.sdk.discovery import Connection

DOCUMENT = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
MODULES = {"v1": v1, "v2": v2, "v3": v3}
# What a parameter is called in the query, where that is another word.
IN_QUERY = {"answer_seconds": "answerSeconds", "kind": "type"}
# No value of them reaches the query, the body or the path as it is.
SAYS_NOTHING = {"key"}


def functions(module: ModuleType) -> dict[str, Callable[..., Call[Any]]]:
    found = inspect.getmembers(module, inspect.isfunction)
    return {name: each for name, each in found if each.__module__ == module.__name__ and not name.startswith("_")}


CALLS = {f"{name}.{function}": each for name, of in MODULES.items() for function, each in functions(of).items()}


def sent_with(make: Callable[..., Call[Any]]) -> tuple[dict[str, Any], Call[Any]]:
    """A value of its own for each parameter, and the call that these make."""
    values: dict[str, Any] = {}
    for at, (name, parameter) in enumerate(inspect.signature(make).parameters.items()):
        kind = str(parameter.annotation)
        if "Mapping" in kind:
            values[name] = {f"field-{at}": {"x": at}}
        elif "bool" in kind:
            values[name] = True
        elif "int" in kind or "float" in kind:
            values[name] = 1000 + at
        else:
            values[name] = {"framework": "pytorch", "kind": "training"}.get(name, f"value {at}/{name}")
    first, *others = values.items() if values else [(None, None)]
    by_name = dict(others)
    return values, make(*([] if first[0] is None else [first[1]]), **by_name) if not _named_alone(make) else make(
        **values
    )


def _named_alone(make: Callable[..., Any]) -> bool:
    return all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in inspect.signature(make).parameters.values())


def operation(made: Call[Any]) -> tuple[str, dict[str, Any]]:
    """The path of the document that this request reaches, and its operation."""
    for path, operations in DOCUMENT["paths"].items():
        if (
            re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)), made.path)
            and made.method.lower() in operations
        ):
            return path, operations[made.method.lower()]
    raise AssertionError(made.name)


@pytest.mark.parametrize("name", CALLS)
def test_each_call_is_an_operation_of_the_document(name: str) -> None:
    _, made = sent_with(CALLS[name])
    _, found = operation(made)
    queries = {each["name"] for each in found.get("parameters", ()) if each["in"] == "query"}
    assert set(made.query) <= queries
    assert (made.body is not None) == ("requestBody" in found)
    headers = {each["name"] for each in found.get("parameters", ()) if each["in"] == "header"}
    assert bool(made.key) == (call.IDEMPOTENCY_KEY in headers)
    (content,) = next(each for code, each in found["responses"].items() if code.startswith("2"))["content"].values()
    answer = content["schema"].get("$ref", content["schema"].get("type", "")).rpartition("/")[2].rpartition(".")[2]
    kind = made.as_type
    known = getattr(kind, "__name__", str(kind))
    # Two answers are plain JSON for scripts, and one is text.
    assert known in {answer, {"array": "list", "string": "str"}.get(answer, "dict" if name in PLAIN else answer)}


PLAIN = {"v1.monitoring", "v1.health"}


@pytest.mark.parametrize("name", CALLS)
def test_each_value_of_a_call_is_sent_once_under_its_own_name(name: str) -> None:
    values, made = sent_with(CALLS[name])
    path, _ = operation(made)
    filled = dict(zip(re.findall(r"\{(\w+)\}", path), _segments(path, made.path), strict=True))
    for parameter, value in values.items():
        if parameter in SAYS_NOTHING:
            assert made.key == value
        elif isinstance(value, dict):
            assert made.body in (value, {parameter: value}, {"namespace": values.get("namespace"), "spec": value})
        elif parameter in filled or parameter == "allocation_id" or parameter == "task_id":
            assert filled[parameter if parameter in filled else "id"] == call.segment(value)
        elif parameter in {"framework", "kind"} and not made.query:
            assert value in made.path
        elif made.body is None or IN_QUERY.get(parameter) in made.query:
            text = "true" if value is True else str(value)
            assert made.query[IN_QUERY.get(parameter, parameter)] == text
        else:
            assert made.body[parameter] == value


def _segments(path: str, sent: str) -> list[str]:
    found = re.fullmatch(re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(path)), sent)
    assert found is not None
    return list(found.groups())


@pytest.mark.parametrize("make", [v3.jobs, v3.nodes, v3.plan, v3.right_sizes, v2.tasks])
def test_the_first_page_is_asked_for_without_a_cursor_and_filters_that_are_none_are_not_sent(
    make: Callable[..., Call[Any]],
) -> None:
    names = inspect.signature(make).parameters
    nothing = {name: False if name in {"unfinished", "bounded"} else None for name in names}
    assert make(**{**nothing, "limit": 5, "cursor": ""}).query == {"limit": "5"}


def test_only_what_changes_nothing_twice_may_be_sent_twice() -> None:
    repeatable = {name for name, make in CALLS.items() if sent_with(make)[1].repeatable}
    writes = {"v1.validate", "v1.allocate", "v1.setup", "v2.start", "v2.configure", "v2.cancel"}
    writes |= {"v3.change", "v3.cancel", "v3.dry_run", "v3.effects", "v3.quota_effects"}
    writes |= {"v3.change_quota"}
    assert set(CALLS) - repeatable == writes


@pytest.mark.parametrize(("name", "sent"), [("a/b", "a%2Fb"), ("a b", "a%20b"), ("a?b#c", "a%3Fb%23c"), ("...", "...")])
def test_a_name_is_one_part_of_a_path(name: str, sent: str) -> None:
    assert call.segment(name) == sent


def connected(token: str = "") -> Connection:
    return Connection(url="http://gw", token=lambda: token, namespace="red")


def test_the_headers_are_those_of_what_is_sent() -> None:
    assert v3.me().headers(connected()) == {"Accept": "application/json, text/plain"}
    found = v3.create({}, key="k").headers(connected("t"))
    assert {name: found[name] for name in ("Authorization", "Content-Type", "Idempotency-Key")} == {
        "Authorization": "Bearer t",
        "Content-Type": "application/json",
        "Idempotency-Key": "k",
    }
    assert (v3.create({"a": 1}, key="k").content(), v3.me().content()) == (b'{"a":1}', None)


STATUSES = {
    400: errors.InvalidError, 401: errors.UnauthorizedError, 403: errors.ForbiddenError, 404: errors.NotFoundError,
    409: errors.ConflictError, 415: errors.InvalidError, 418: errors.RefusedError, 422: errors.InvalidError,
    429: errors.BusyError, 500: errors.RefusedError, 502: errors.BusyError, 503: errors.BusyError,
    504: errors.BusyError,
}  # fmt: skip


@pytest.mark.parametrize("status", STATUSES)
def test_each_status_has_its_error(status: int) -> None:
    body = {
        "detail": "no",
        "reason": "Because",
        "suggestion": "ask for less",
        "errors": [{"field": "spec.gpu", "message": "m"}, {"message": "n"}],
        "details": [{"code": "NoSuchTask", "parameters": {"task": "t"}}],
    }
    with pytest.raises(errors.RefusedError) as caught:
        v3.me().answer(msgspec.json.encode(body), status=status, url="http://gw")
    found = caught.value
    assert type(found) is STATUSES[status]
    assert (found.status, found.reason, found.message, found.suggestion) == (status, "Because", "no", "ask for less")
    assert found.fields == ("spec.gpu", "")
    assert found.details == (MessageDetail(code="NoSuchTask", parameters={"task": "t"}),)
    assert str(found) == "no; ask for less"


def test_the_message_of_v1_comes_before_the_detail_of_the_others() -> None:
    with pytest.raises(errors.RefusedError, match=r"^one$"):
        v1.status().answer(b'{"message": "one", "detail": "two"}', status=409, url="http://gw")


@pytest.mark.parametrize("status", [199, 300, 302, 404])
def test_what_is_no_success_and_has_no_message_is_no_gateways_answer(status: int) -> None:
    with pytest.raises(errors.UnexpectedAnswerError, match=f"GET /api/v3/me: status {status} x+$") as caught:
        v3.me().answer(b"x" * 500, status=status, url="http://gw")
    assert len(str(caught.value)) < 350


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_page_of_a_proxy_about_a_gateway_that_is_away_says_later(status: int) -> None:
    with pytest.raises(errors.BusyError, match=rf"^http://gw does not answer now: GET /api/v3/me: status {status} <p>"):
        v3.me().answer(b"<p>Bad Gateway</p>", status=status, url="http://gw")


ERRORS = [
    errors.DovetailError("a"),
    errors.SettingsError("a"),
    errors.UnreachableError("http://gw", call="GET", problem="reset", attempts=3),
    errors.UnexpectedAnswerError("http://gw", call="GET", problem="status 200"),
    errors.refused(409, reason="Conflict", message="no room", suggestion="ask for less", fields=["spec.gpu"]),
    errors.BusyError("later", status=503),
    errors.WaitTimeoutError("it is not there", seconds=3, last="Queued"),
    errors.FunctionFailedError("job 7", problem="it is Failed", traceback="in train"),
    errors.AllocationLostError("hold-1", problem="it was deleted"),
    errors.MissingExtraError("torch", extra="torch"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_out_of_a_pool_of_processes_as_it_was(error: errors.DovetailError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), found.args, vars(found)) == (type(error), str(error), error.args, vars(error))


@pytest.mark.parametrize("status", [200, 201, 299])
def test_every_success_is_an_answer(status: int) -> None:
    content = b'{"success": true, "allocation_id": "a", "released": true}'
    assert v1.release("a").answer(content, status=status, url="http://gw").released
