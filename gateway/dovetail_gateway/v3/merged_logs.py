"""Logs of several workers as one text: whole lines, each with its worker's number. Memory is bounded."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Final

# Pieces that wait for a slow reader; the API server waits for the rest.
_MOST_PIECES: Final = 64
# A longer line is passed on in parts, so that a worker without line ends costs no memory.
_LONGEST_LINE: Final = 64 * 1024


async def merged(logs: Mapping[int, AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
    """The lines of all workers as they come, such as `2│ step 100`. Raises what reading one of the logs raises."""
    pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(_MOST_PIECES)

    async def read(worker: int, *, chunks: AsyncIterator[bytes]) -> None:
        try:
            async for lines in _lines(chunks, prefix=f"{worker}│ ".encode()):
                await pieces.put(lines)
            await pieces.put(None)
        except Exception as error:  # noqa: BLE001 - the reader raises it
            await pieces.put(error)

    reading = [asyncio.create_task(read(worker, chunks=chunks)) for worker, chunks in logs.items()]
    try:
        left = len(reading)
        while left:
            piece = await pieces.get()
            if isinstance(piece, Exception):
                raise piece
            if piece is None:
                left -= 1
            else:
                yield piece
    finally:
        for task in reading:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _lines(chunks: AsyncIterator[bytes], *, prefix: bytes) -> AsyncIterator[bytes]:
    """The text in pieces of whole lines, each line with the prefix."""
    rest, is_cut = b"", False
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        if is_cut and whole and not whole[0]:
            # The end of a line that was passed on in parts, whose last part has its own end already.
            del whole[0]
        is_cut = is_cut and not chunk
        if len(rest) > _LONGEST_LINE:
            whole, rest, is_cut = [*whole, rest], b"", True
        if whole:
            yield b"".join(prefix + line + b"\n" for line in whole)
    if rest:
        yield prefix + rest + b"\n"
