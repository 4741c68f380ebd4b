"""The blocking face is the one for asyncio without its words."""

import dovetail.sdk.aio.client
import dovetail.sdk.blocking.client
from tools import unasync


def test_each_blocking_module_is_generated_from_its_twin() -> None:
    assert list(unasync.outdated()) == [], "run `python -m tools.unasync`"


def test_each_rule_is_needed() -> None:
    assert unasync.unused_rules() == []


def test_no_word_of_asyncio_is_left() -> None:
    for path in unasync.TARGET.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not {"await", "asyncio", "async"} & set(text.replace("`aio`", "").split()), path
        assert "Async" not in text


def test_both_faces_have_the_same_methods() -> None:
    def names(of: type) -> set[str]:
        return {name for name in vars(of) if not name.startswith("_")}

    asynchronous = names(dovetail.sdk.aio.client.AsyncClient)
    assert {name.removeprefix("a") if name == "aclose" else name for name in asynchronous} == names(
        dovetail.sdk.blocking.client.Client
    )
