import asyncio

from dovetail_agent.agent import _in_loop


def test_news_of_the_cards_after_the_end_is_no_error() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    _in_loop(loop, lambda: None)


async def test_news_from_another_thread_is_heard_in_the_loop() -> None:
    heard = asyncio.Event()
    await asyncio.to_thread(_in_loop, asyncio.get_running_loop(), heard.set)
    async with asyncio.timeout(60):
        await heard.wait()
