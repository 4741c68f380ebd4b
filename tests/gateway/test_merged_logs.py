"""The logs of several workers as one text: whole lines in the order in which they come, and nothing is left behind."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from dovetail.kube.errors import Unreachable
from dovetail_gateway.v3 import logs
from dovetail_gateway.v3.logs import merged


async def chunks(*texts: str, then: BaseException | None = None) -> AsyncIterator[bytes]:
    for text in texts:
        await asyncio.sleep(0)
        yield text.encode()
    if then is not None:
        raise then


async def lines_of(logs: dict[int, AsyncIterator[bytes]]) -> list[str]:
    return b"".join([piece async for piece in merged(logs)]).decode().splitlines(keepends=True)


@given(st.dictionaries(st.integers(0, 3), st.lists(st.text("ab\n", max_size=4), max_size=6), max_size=3))
def test_each_worker_s_lines_come_whole_and_in_order_however_they_are_cut(cut: dict[int, list[str]]) -> None:
    found = asyncio.run(lines_of({worker: chunks(*texts) for worker, texts in cut.items()}))
    for worker, texts in cut.items():
        prefix, text = f"{worker}│ ", "".join(texts)
        own = [line.removeprefix(prefix) for line in found if line.startswith(prefix)]
        assert "".join(own) == (text if text.endswith("\n") or not text else f"{text}\n")
    assert all(line.endswith("\n") and line[1:3] == "│ " for line in found)


LONGEST = 10


@given(st.lists(st.text("abcd\n", max_size=3 * LONGEST), max_size=8))
@example(["x" * 11, "\n", "\n", "a"])
@example(["a\n" + "x" * 11, "b\n"])
def test_no_text_is_lost_and_no_line_is_cut_but_those_that_are_too_long(texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "_LONGEST_LINE", LONGEST)
        found = [line.removeprefix("0│ ").removesuffix("\n") for line in asyncio.run(lines_of({0: chunks(*texts)}))]
    for line in "".join(texts).splitlines():
        parts = [found.pop(0)]
        while len(line) > LONGEST and len("".join(parts)) < len(line):
            assert len(parts[-1]) > LONGEST, "only the last part of a line is short"
            parts.append(found.pop(0))
        assert "".join(parts) == line
    assert not found


async def test_a_line_without_an_end_is_passed_on_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_LONGEST_LINE", 10)
    found = await lines_of({0: chunks("x" * 8, "y" * 8, "z" * 8, "\n")})
    assert found == ["0│ " + "x" * 8 + "y" * 8 + "\n", "0│ " + "z" * 8 + "\n"]


async def test_one_worker_that_ends_leaves_the_others_to_their_end() -> None:
    found = await lines_of({0: chunks("a\n"), 1: chunks(*["b\n"] * 5), 2: chunks()})
    assert sorted(found) == ["0│ a\n", *["1│ b\n"] * 5]


async def test_what_reading_one_log_raises_ends_all_of_them() -> None:
    endless = asyncio.Event()

    async def waits() -> AsyncIterator[bytes]:
        try:
            yield b"first\n"
            await asyncio.Event().wait()
        finally:
            endless.set()

    away = Unreachable("https://api", problem="reset")
    with pytest.raises(Unreachable):
        await lines_of({0: waits(), 1: chunks("b\n", then=away)})
    assert endless.is_set()
    assert [each for each in asyncio.all_tasks() if each is not asyncio.current_task()] == []


async def test_a_reader_who_leaves_ends_the_reading_of_all() -> None:
    ended = set[int]()

    async def waits(worker: int) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"again\n"
                await asyncio.sleep(0)
        finally:
            ended.add(worker)

    reading: Any = merged({worker: waits(worker) for worker in (0, 1)})
    seen = {await anext(reading) for _ in range(8)}
    assert seen == {"0│ again\n".encode(), "1│ again\n".encode()}
    await reading.aclose()
    assert ended == {0, 1}


async def test_a_slow_reader_lets_no_more_than_a_bound_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_MOST_PIECES", 3)
    read = 0

    async def fast() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"line\n"

    reading: Any = merged({0: fast()})
    await anext(reading)
    for _ in range(50):
        await asyncio.sleep(0)
    assert read <= 1 + 3 + 2
    await reading.aclose()
