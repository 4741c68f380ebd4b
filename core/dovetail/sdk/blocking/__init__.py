"""The SDK without asyncio: `python -m tools.unasync` generates each module but `runtime` from its twin in `aio`."""
