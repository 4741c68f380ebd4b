"""The SDK for asyncio. Each module but `runtime` is the source of its blocking twin (`python -m tools.unasync`)."""
