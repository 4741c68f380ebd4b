"""Each argument of a client's methods reaches the gateway, in both faces, and what is not given says nothing."""

import asyncio
import inspect
import json
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from dovetail.sdk import AsyncClient, AsyncTaskClient, Client, TaskClient
from dovetail.sdk.aio.jobs import AsyncJob
from dovetail.sdk.blocking.jobs import Job
from dovetail.sdk.calls.call import Call
from tests.sdk.test_waits import row

URL: Final = "http://127.0.0.1:1"
OWN: Final = "own-namespace"
# What is tested with what it makes: jobs, functions, allocations, connections.
ELSEWHERE: Final = {"moves", "submit", "map", "allocation", "send", "aclose", "close"}
# Of a job: what looks at it again and again, or makes no call of its own.
OF_JOBS: Final = {"wait", "logs", "refresh", "status"}
# Texts that a parameter takes, where it takes no other; each is in no other part of a call.
WORDS: Final = {"of": "Job", "by": "Project", "moves": "Restart"}
# Without a namespace these are about the client's own; all others are about every namespace, or about none.
IN_OWN: Final = {"job", "dry_run", "doctor", "history", "series"}
# Of which another one is there in its place.
INSTEAD: Final = {"gpu": "spec"}
# What a call says for a switch.
SAID: Final = {"willing": "true", "unfinished": "true", "bounded": "true"}


class SentError(Exception):
    """Ends a method once it has sent its call."""

    def __init__(self, call: Call[Any]) -> None:
        self.call = call
        super().__init__(call.name)


def methods(of: type, *, without: set[str]) -> list[str]:
    found = inspect.getmembers(of, inspect.isfunction)
    return [name for name, _ in found if not name.startswith("_") and name not in without]


def given(method: Callable[..., Any]) -> dict[str, Any]:
    """A value of its own for each parameter."""
    hints = typing.get_type_hints(method)
    found: dict[str, Any] = {}
    for at, (name, parameter) in enumerate(inspect.signature(method).parameters.items()):
        if name == "self":
            continue
        kind = str(hints[name])
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found["further"] = f"field-{at}"
        elif name in WORDS:
            found[name] = WORDS[name]
        elif "Mapping" in kind:
            found[name] = {f"field-{at}": {"training": 100 + at}}
        elif "bool" in kind:
            found[name] = True
        elif "int" in kind and "str" not in kind:
            found[name] = 100 + at
        elif name == "gpu":
            found[name] = f"{at + 3}(V100)"
        else:
            found[name] = f"value-{at}"
    return found


def sent(made: Any, *, name: str, values: dict[str, Any]) -> Call[Any]:
    """The call that a method makes with these arguments."""

    def capture(call: Call[Any]) -> Any:
        raise SentError(call)

    async def later(call: Call[Any]) -> Any:
        raise SentError(call)

    made._transport.send = later if inspect.iscoroutinefunction(type(made._transport).send) else capture
    method = getattr(made, name)
    positional = [
        values[each]
        for each, parameter in inspect.signature(method).parameters.items()
        if each in values and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    taken = list(inspect.signature(method).parameters)[: len(positional)]
    named = {each: value for each, value in values.items() if each not in taken}

    async def run() -> None:
        answer = method(*positional, **named)
        if hasattr(answer, "all"):
            answer = answer.all()
        if inspect.isawaitable(answer):
            await answer

    with pytest.raises(SentError) as raised:
        asyncio.run(run())
    return raised.value.call


def texts_of(call: Call[Any]) -> str:
    """All that a call says."""
    return json.dumps([call.path, dict(call.query), call.body], sort_keys=True)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from leaves(each)
    else:
        yield value


@pytest.fixture(params=[AsyncClient, Client])
def client(request: pytest.FixtureRequest) -> Any:
    return request.param(URL, token="t", namespace=OWN)


@pytest.fixture(params=[AsyncTaskClient, TaskClient])
def tasks(request: pytest.FixtureRequest) -> Any:
    return request.param(URL, "t")


@pytest.fixture
def job(client: Any) -> Any:
    made = AsyncJob if isinstance(client, AsyncClient) else Job
    return made(row("Running"), transport=client._transport)


def check(made: Any, *, name: str) -> None:
    values = given(getattr(type(made), name))
    call = sent(made, name=name, values=values)
    said = texts_of(call)
    for key, found in {**call.query, **(call.body if isinstance(call.body, dict) else {})}.items():
        if key in values and values[key] is not True:
            assert str(found) == str(values[key]), "under its own name"
    for parameter, value in values.items():
        if parameter in INSTEAD and INSTEAD[parameter] in values:
            continue
        for leaf in leaves(value):
            # A switch is there by its name, or changes what is said.
            text = SAID.get(parameter, "") if leaf is True else str(leaf)
            assert text in said, (parameter, leaf, said)
            if leaf is True:
                assert said != texts_of(sent(made, name=name, values={**values, parameter: False})), parameter


def test_each_argument_of_a_client_reaches_the_gateway(client: Any) -> None:
    for name in methods(AsyncClient, without=ELSEWHERE):
        check(client, name=name)


def test_each_argument_of_a_client_of_tasks_reaches_the_gateway(tasks: Any) -> None:
    for name in methods(AsyncTaskClient, without=ELSEWHERE | {"wait"}):
        check(tasks, name=name)


def test_each_argument_of_what_a_job_does_reaches_the_gateway(job: Any) -> None:
    for name in methods(AsyncJob, without=OF_JOBS):
        check(job, name=name)


def test_what_is_not_given_says_nothing(client: Any) -> None:
    for name in methods(AsyncClient, without=ELSEWHERE):
        method = getattr(type(client), name)
        needed = {
            each
            for each, parameter in inspect.signature(method).parameters.items()
            if parameter.default is inspect.Parameter.empty
        }
        values = {each: value for each, value in given(method).items() if each in needed}
        call = sent(client, name=name, values=values)
        assert (OWN in texts_of(call)) == (name in IN_OWN), name
        assert set(call.query) <= {"limit", "namespace", "of", "by", *needed}, (name, call.query)
        assert "None" not in texts_of(call)


def test_only_the_curves_of_a_job_are_of_the_clients_namespace(client: Any) -> None:
    assert OWN not in texts_of(sent(client, name="series", values={"of": "Namespace"}))
    asked = sent(client, name="series", values={"of": "Namespace", "namespace": "red"})
    assert asked.query["namespace"] == "red"
