"""The document: the file, what the server serves, and the page that shows it."""

import json

import pytest

from tests.gateway.openapi import PAGE, document, table
from tests.gateway.served import Face


async def test_the_file_equals_what_the_running_server_serves(face: Face) -> None:
    served = await face.get("/openapi.json")
    assert served.json == json.loads(PAGE.read_text(encoding="utf-8")), "run `python -m tests.gateway.openapi`"


def test_each_route_is_described_with_its_right_and_each_of_its_answers() -> None:
    found = document()
    for each in table():
        described = found["paths"][each.path][each.method.lower()]
        assert described["x-required-right"]
        assert {str(status) for status in each.answers} <= described["responses"].keys()
        assert ("security" in described) == (each.right.by != "none")


def test_each_reference_of_the_document_leads_somewhere() -> None:
    found = document()
    text = json.dumps(found)
    named = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert named <= found["components"]["schemas"].keys()


async def test_the_page_takes_nothing_from_another_server_and_allows_no_inline_script(face: Face) -> None:
    redirect = await face.get("/api/docs")
    assert redirect.headers["Location"] == "/api/docs/docs.html"
    page = await face.get("/api/docs/docs.html")
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    for name in ("docs.html", "docs.css", "docs.js"):
        served = await face.get(f"/api/docs/{name}")
        assert served.status == 200
        assert "//" not in served.text.replace("// Shows", ""), f"{name} names another server"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/openapi.json", "application/json"),
        ("/api/docs/docs.html", "text/html"),
        ("/api/docs/docs.css", "text/css"),
        ("/api/docs/docs.js", "text/javascript"),
    ],
)
async def test_the_page_and_its_files_need_no_token_and_are_asked_for_again(face: Face, path: str, kind: str) -> None:
    found = await face.get(path)
    assert (found.status, found.headers["Content-Type"].partition(";")[0]) == (200, kind)
    assert (found.headers["Cache-Control"], bool(found.text)) == ("no-cache", True)
    if kind != "application/json":
        assert found.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_person_is_led_to_the_page(face: Face) -> None:
    found = await face.get("/api/docs")
    assert (found.status, found.headers["Location"]) == (302, "/api/docs/docs.html")


def test_a_field_is_required_where_each_answer_has_it_and_optional_in_a_request() -> None:
    schemas = document()["components"]["schemas"]
    assert schemas["Enforcement"]["required"] == list(schemas["Enforcement"]["properties"])
    assert schemas["QuotaGuarantee"]["required"][-2:] == ["memory", "wouldGive"]
    assert schemas["NewJob"]["required"] == ["namespace", "spec"], "a request may leave out what has a default"
