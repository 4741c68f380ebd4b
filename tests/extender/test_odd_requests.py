"""The verbs' port: whatever is said to it is answered, and no second request hides in a first one."""

import asyncio
import json
from pathlib import Path

from dovetail.process.certificate import Certificate
from dovetail_extender.verb_server import VerbServer
from tests.authority import Authority
from tests.extender.builders import asking, make_pod
from tests.extender.harness import Face
from tests.extender.test_mutual_tls import CLIENT, SERVER, context_of
from tests.odd_requests import odd_requests, statuses


async def test_whatever_is_said_is_answered(face: Face, tmp_path: Path) -> None:
    authority, folder = Authority(), tmp_path / "server"
    authority.sign(SERVER).write(folder, authority=authority.certificate)
    context = context_of(tmp_path / "client", pair=authority.sign(CLIENT), trusted=authority.certificate)
    certificate = Certificate(folder, clients=folder / "ca.crt")
    server = VerbServer(host="127.0.0.1", port=0, certificate=certificate, names=[CLIENT])
    app = server.application(face.extender.metrics)
    face.extender.verbs.add_to(app)
    async with server.listening(app) as port:
        for name, odd in odd_requests("/filter", json.dumps(asking(make_pod(), "a")).encode()).items():
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=SERVER)
            writer.write(odd.sent)
            async with asyncio.timeout(30):
                assert statuses(await reader.read()) == odd.answers, name
            writer.transport.abort()
