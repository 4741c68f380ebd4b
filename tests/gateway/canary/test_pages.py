"""Each filter of each list alone and with others, and each size of its pages: what they choose is counted from rows."""

import itertools
from typing import Any, Final

import pytest

from tests.gateway.canary.objects import NAMESPACES, ONE
from tests.gateway.served import Face

FINISHED: Final = {"Succeeded", "Failed", "TimedOut", "Cancelled"}
READERS: Final = ("quokka-token", "both-token", "admin-token")
# The key of each list's rows.
LISTS: Final = {
    "/api/v3/jobs": "items",
    "/api/v3/nodes": "items",
    "/api/v3/devices": "items",
    "/api/v3/plan": "items",
    "/api/v3/right-sizes": "items",
    "/api/v2/tasks": "tasks",
}


async def rows_of(face: Face, path: str, *, token: str, **query: Any) -> list[Any]:
    found = await face.get(path, token=token, params={"limit": "500"} | query)
    assert found.status == 200, found.text
    rows: list[Any] = found.json[LISTS[path]]
    assert found.json["next"] is None
    return rows


def values(rows: list[Any], key: str) -> list[Any]:
    """None, each value that there is, and one that no row has."""
    return [None, *sorted({row[key] for row in rows if row[key]})]


@pytest.mark.parametrize("token", READERS)
async def test_the_filters_of_jobs_choose_together_what_each_of_them_does(face: Face, token: str) -> None:
    path = "/api/v3/jobs"
    every = await rows_of(face, path, token=token)
    by_where = [
        {"namespace": namespace, "phase": phase, "unfinished": unfinished}
        for namespace in (None, *NAMESPACES)
        for phase in values(every, "phase")
        for unfinished in (None, "true")
    ]
    by_whom = [
        {"user": user, "project": project, "unfinished": unfinished}
        for user in values(every, "user")
        for project in values(every, "project")
        for unfinished in (None, "true")
    ]
    for query in [*by_where, *by_whom]:
        asked = {key: value for key, value in query.items() if value is not None}
        found = await rows_of(face, path, token=token, **asked)
        ends = asked.pop("unfinished", None) is not None
        wanted = [row for row in every if asked.items() <= row.items() and not (ends and row["phase"] in FINISHED)]
        assert found == wanted, (query, [row["name"] for row in found])


@pytest.mark.parametrize("token", READERS)
async def test_the_filters_of_tasks_nodes_and_the_plan_choose_what_they_say(face: Face, token: str) -> None:
    tasks = await rows_of(face, "/api/v2/tasks", token=token)
    for status, kind in itertools.product(values(tasks, "status"), values(tasks, "type")):
        asked = {key: value for key, value in (("status", status), ("type", kind)) if value is not None}
        found = await rows_of(face, "/api/v2/tasks", token=token, **asked)
        assert found == [row for row in tasks if asked.items() <= row.items()], asked
    plan = await rows_of(face, "/api/v3/plan", token=token)
    for namespace, bounded in itertools.product((None, *NAMESPACES), (None, "true")):
        asked = {key: value for key, value in (("namespace", namespace), ("bounded", bounded)) if value is not None}
        found = await rows_of(face, "/api/v3/plan", token=token, **asked)
        wanted = [row for row in plan if namespace in (None, row["namespace"])]
        if bounded:
            wanted = [row for row in wanted if row["planned"] or row["fills"] or row["leavesAt"]]
        assert found == wanted, asked
    nodes = await rows_of(face, "/api/v3/nodes", token=token)
    models = {device["model"] for node in nodes for device in node["devices"]}
    assert len(models) > 1
    for model in models:
        found = await rows_of(face, "/api/v3/nodes", token=token, model=model)
        assert found == [node for node in nodes if any(device["model"] == model for device in node["devices"])], model


@pytest.mark.parametrize("path", LISTS)
async def test_pages_of_each_size_are_the_whole_list_in_its_order(face: Face, path: str) -> None:
    every = await rows_of(face, path, token="both-token")
    assert len(every) > 1
    for limit in (1, 2, 3, max(1, len(every) - 1)):
        rows, cursor, pages = list[Any](), "", 0
        while cursor is not None:
            found = (await face.get(path, token="both-token", params={"limit": str(limit), "cursor": cursor})).json
            page = found[LISTS[path]]
            assert page, "no page is empty"
            assert path.endswith("devices") or len(page) <= limit
            assert found.get("total", len(every)) == len(every)
            rows += page
            cursor, pages = found["next"], pages + 1
        assert rows == every
        assert path.endswith("devices") or pages == -(-len(every) // limit)


async def test_what_bounds_the_plan_comes_with_its_first_page_alone(face: Face) -> None:
    found = (await face.get("/api/v3/plan", token="both-token", params={"limit": "1"})).json
    rest = (await face.get("/api/v3/plan", token="both-token", params={"limit": "1", "cursor": found["next"]})).json
    assert all(found[key] for key in ("kept", "windows", "drains"))
    assert not any(rest[key] for key in ("kept", "windows", "drains"))
    other = (await face.get("/api/v3/plan", token="both-token", params={"namespace": ONE.namespace})).json
    assert other["kept"] == found["kept"], "the room that is kept for others bounds this namespace too"
