"""`dovetail-webhook` as a process: asked over TLS as the API server asks, and a graceful end."""

import asyncio
import json
import os
import signal
import ssl
import sys
from pathlib import Path

import aiohttp

from tests.background import free_ports
from tests.webhook.test_app import make_review
from tests.webhook.test_certificate import write_pair

PROGRAM = (sys.executable, "-c", "from dovetail_webhook.main import main; raise SystemExit(main())")


async def until_ready(http: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with http.get(url) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def test_it_answers_over_tls_tells_what_it_did_and_ends_when_told(tmp_path: Path) -> None:
    authority = write_pair(tmp_path)
    port, metrics = free_ports(count=2)
    options = (f"--certificates={tmp_path}", f"--port={port}", f"--metrics-port={metrics}", "--host=127.0.0.1")
    process = await asyncio.create_subprocess_exec(*PROGRAM, *options, env=dict(os.environ))
    try:
        async with aiohttp.ClientSession() as http:
            await until_ready(http, f"http://127.0.0.1:{metrics}/readyz")
            context = ssl.create_default_context(cadata=authority.decode())
            url, body = f"https://127.0.0.1:{port}/mutate", json.dumps(make_review())
            async with http.post(url, data=body, ssl=context) as response:
                assert (await response.json())["response"]["allowed"]
            async with http.get(f"http://127.0.0.1:{metrics}/metrics") as response:
                assert 'dovetail_webhook_reviews_total{kind="Pod",outcome="patched"} 1.0' in await response.text()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), timeout=60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
