"""What another user of the machine gets: sockets and files of a sandbox, tried as uid 65534.

The sockets come from /proc, by the processes of the sandbox; the files from its folders. Nothing here knows a port.
"""

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import h2.connection
import h2.events
import h2.exceptions
import pytest

from dovetail.process import identity
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.processes import processes

NOBODY: Final = 65534
PROC: Final = Path("/proc")
_LISTENS: Final = "0A"  # TCP_LISTEN in /proc/net/tcp
_ACCEPTS: Final = 0x10000  # __SO_ACCEPTCON in /proc/net/unix
_SECONDS: Final = 10.0
# What a browser, a scraper, kube-scheduler, the API server and a client of etcd would ask.
ASKED: Final = (
    ("GET", "/"), ("GET", "/metrics"), ("GET", "/livez"), ("GET", "/readyz"), ("GET", "/healthz"), ("GET", "/health"),
    ("GET", "/version"), ("GET", "/configz"), ("GET", "/flagz"), ("GET", "/statusz"), ("GET", "/debug/pprof/"),
    ("GET", "/debug/pprof/heap"), ("GET", "/pods"), ("GET", "/containerLogs/default/a/a"), ("GET", "/v2/keys"),
    ("GET", "/openapi.json"), ("GET", "/api/v3/jobs"), ("GET", "/api/v3/nodes"), ("GET", "/console/"),
    ("POST", "/filter"), ("POST", "/prioritize"), ("POST", "/preempt"), ("POST", "/bind"), ("POST", "/mutate"),
    ("POST", "/convert"), ("POST", "/v3/kv/range"), ("POST", "/v3/kv/put"), ("POST", "/v3/maintenance/status"),
    ("POST", "/api/v3/jobs"), ("POST", "/run/default/a/a"), ("POST", "/exec/default/a/a"),
    ("GET", "/api/v1/gpu/status"), ("GET", "/api/v2/tasks"), ("POST", "/api/v2/training/start"),
)  # fmt: skip
_HEALTH: Final = ("/livez", "/readyz", "/healthz")
# Who answers without a credential: a program, the paths, and why it may.
ALLOWED: Final = {
    "kube-apiserver": ((*_HEALTH, "/version"), "Kubernetes' role system:public-info-viewer, over its own TLS"),
    "kube-controller-manager": (_HEALTH, "health, over its own TLS"),
    "default-scheduler": (_HEALTH, "health, over its own TLS"),
    "kube-scheduler": (_HEALTH, "health, over its own TLS"),
    "gateway": (("/", "/console/", "/openapi.json"), "the console's page and the API's description, for everybody"),
}
_KEY: Final = "L3JlZ2lzdHJ5"  # "/registry" in Base64
_BODY: Final = json.dumps({"key": _KEY, "value": _KEY, "PodName": "a", "Node": "a", "NodeNames": ["a"], "Pod": {}})
# A call of etcd over gRPC: a RangeRequest for the key "/", not compressed, with its length.
_RANGE: Final = b"\0\0\0\0\3\n\1/"
_RANGE_PATH: Final = "/etcdserverpb.KV/Range"
_GRPC: Final = ("content-type", "application/grpc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listening socket: whose it is, and where. A socket without a path or a name is a TCP port."""

    program: str
    address: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return bool(self.path) or self.address.startswith("127.") or self.address == "::1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a socket answered to a request without a credential."""

    program: str
    asked: str
    status: int
    said: str


def need_root() -> None:
    """Only root becomes another user. Where nobody watches, a skip would hide that nothing was tried."""
    if os.getuid() != 0:
        if os.environ.get("CI"):
            pytest.fail("this test becomes another user, so CI must run it as root")
        pytest.skip("this test becomes another user: run it as root")


def listeners(cluster: Cluster) -> list[Listener]:
    """The listening sockets of every process of the sandbox, whatever started it."""
    found = {each for pid, program in programs(cluster).items() for each in listeners_of(pid, program=program)}
    # In a process that programs share, a socket is that of the program whose port it has.
    owners = {port: name.partition(".")[0] for name, port in cluster.state().ports.items()}
    return sorted(
        (
            replace(each, program=owners.get(each.port, each.program)) if ", " in each.program else each
            for each in found
        ),
        key=str,
    )


def programs(cluster: Cluster) -> dict[int, str]:
    """The processes of the sandbox: those that carry its mark, the supervisor, and all their descendants."""
    supervisor = cluster.state().supervisor
    assert supervisor is not None
    found = {supervisor.pid, *(each.pid for each in processes.of_sandbox(cluster.folder))}
    parents = {int(path.name): _parent(int(path.name)) for path in PROC.iterdir() if path.name.isdecimal()}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    names: dict[int, list[str]] = defaultdict(list)
    for name, each in cluster.observed().items():
        if each.process:
            names[each.process.pid].append(name)
    return {pid: ", ".join(names[pid]) or _command(pid) for pid in found - {os.getpid()}}


def _parent(pid: int) -> int:
    fields = identity.stat_of(pid)
    return int(fields[1]) if fields else 0


def _command(pid: int) -> str:
    with suppress(OSError):
        return (PROC / str(pid) / "comm").read_text().strip()
    return ""


def listeners_of(pid: int, *, program: str) -> Iterator[Listener]:
    """The listening sockets of one process."""
    inodes = set(_sockets(pid))
    for table in ("tcp", "tcp6"):
        for fields in _rows(pid, table=table):
            if fields[3] == _LISTENS and fields[9] in inodes:
                address, _, port = fields[1].partition(":")
                yield Listener(program=program, address=_address(address), port=int(port, 16))
    for fields in _rows(pid, table="unix"):
        if int(fields[3], 16) & _ACCEPTS and fields[6] in inodes:
            yield Listener(program=program, path=fields[7] if len(fields) > 7 else "(no name)")


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for link in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                target = str(link.readlink())
                if target.startswith("socket:["):
                    yield target[8:-1]


def _rows(pid: int, *, table: str) -> list[list[str]]:
    # Of the process's own network namespace.
    with suppress(OSError):
        return [line.split() for line in (PROC / str(pid) / "net" / table).read_text().splitlines()[1:]]
    return []


def _address(text: str) -> str:
    packed = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def readable(folders: Iterable[Path]) -> list[str]:
    """The files below the folders that another user can read or write, or whose mode would let one."""
    found = [str(path) for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert found
    open_modes = [f"{path} has mode {_mode(path):03o}" for path in found if _mode(path) & 0o077]
    return [*open_modes, *as_nobody("files", found)]


def _mode(path: str) -> int:
    return Path(path).stat().st_mode & 0o777


def answers(found: Sequence[Listener]) -> list[Answer]:
    """What the sockets answer to uid 65534, without refusals."""
    return [Answer(**each) for each in as_nobody("sockets", [asdict(each) for each in found])]


def posted(listener: Listener, *, path: str, body: str) -> list[int]:
    """The statuses of a POST of uid 65534 over HTTP and over HTTPS; 0 where there is no answer."""
    found: list[int] = as_nobody("post", {"listener": asdict(listener), "path": path, "body": body})
    return found


def _unexpected(answers: list[Answer]) -> list[Answer]:
    """The answers that nothing allows."""
    return [each for each in answers if not _is_allowed(each)]


def _is_allowed(answer: Answer) -> bool:
    paths, _why = ALLOWED.get(answer.program, ((), ""))
    return answer.asked.split()[-1] in paths


def check(tried: Cluster, *, folders: list[Path]) -> None:
    """No socket of the sandbox answers but as `ALLOWED` has it, and no file in its folders opens."""
    found = listeners(tried)
    assert {"etcd", "kube-apiserver", "extender", "webhook", "gateway"} <= {each.program for each in found}
    wrong = [each for each in found if not each.is_loopback], _unexpected(answers(found)), readable(folders)
    assert not any(wrong), wrong


def as_nobody(what: str, given: Any) -> Any:
    """Run this module as uid 65534. It changes its user after its imports: that user may not read this checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.other_user", what],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _main() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    given = json.load(sys.stdin)
    match sys.argv[1]:
        case "files":
            found: list[Any] = [path for path in given if _can_open(path)]
        case "post":
            listener, path, body = Listener(**given["listener"]), given["path"], given["body"]
            found = [_status(listener, method="POST", path=path, tls=tls, body=body)[0] for tls in (False, True)]
        case _:
            found = [asdict(answer) for each in given for answer in _all_answers(Listener(**each))]
    json.dump(found, sys.stdout)


def _can_open(path: str) -> bool:
    for flags in (os.O_RDONLY, os.O_WRONLY):
        with suppress(OSError):
            os.close(os.open(path, flags))
            return True
    return False


def _all_answers(listener: Listener) -> Iterator[Answer]:
    """Every answer to a request over HTTP, HTTPS and gRPC that is no refusal."""
    for tls in (False, True):
        called = _called(listener, tls=tls)
        if not _refuses(called, said=""):
            yield Answer(program=listener.program, asked=f"gRPC {_RANGE_PATH}", status=called, said="")
        for method, path in ASKED:
            status, said = _status(listener, method=method, path=path, tls=tls)
            if not _refuses(status, said=said):
                asked = f"{method} {'https' if tls else 'http'} {path}"
                yield Answer(program=listener.program, asked=asked, status=status, said=said[:200])


def _refuses(status: int, *, said: str) -> bool:
    """Whether an answer is a refusal, or says that there is nothing; 0 is none: no connection, or no handshake."""
    return status in {0, 401, 403, 404} or (status == 400 and "HTTP request to an HTTPS server" in said)


def _status(listener: Listener, *, method: str, path: str, tls: bool, body: str = _BODY) -> tuple[int, str]:
    headers = {"Content-Type": "application/json", "Host": "127.0.0.1"}
    with suppress(OSError, http.client.HTTPException), _connected(listener, tls=tls) as connected:
        connection = http.client.HTTPConnection("127.0.0.1")
        connection.sock = connected
        connection.request(method, path, body=body if method == "POST" else None, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(4096).decode(errors="replace")
    return 0, ""


def _called(listener: Listener, *, tls: bool) -> int:
    """The status of an answer to a call of etcd over gRPC."""
    client = h2.connection.H2Connection()
    client.initiate_connection()
    path, scheme = (":path", _RANGE_PATH), (":scheme", "https" if tls else "http")
    headers = [(":method", "POST"), scheme, (":authority", "127.0.0.1"), path, ("te", "trailers"), _GRPC]
    client.send_headers(1, headers)
    client.send_data(1, _RANGE, end_stream=True)
    with suppress(OSError, h2.exceptions.ProtocolError), _connected(listener, tls=tls, protocols=("h2",)) as connected:
        connected.sendall(client.data_to_send())
        while data := connected.recv(65_536):
            for event in client.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    return int(dict(event.headers)[b":status"])
            connected.sendall(client.data_to_send())
    return 0


def _connected(listener: Listener, *, tls: bool, protocols: Sequence[str] = ()) -> socket.socket:
    plain = socket.socket(socket.AF_UNIX if listener.path else socket.AF_INET)
    plain.settimeout(_SECONDS)
    if listener.path:
        # A name without a file is of the abstract namespace, which every user reaches.
        plain.connect(f"\0{listener.path[1:]}" if listener.path.startswith("@") else listener.path)
    else:
        plain.connect(("127.0.0.1" if listener.address in {"0.0.0.0", "::"} else listener.address, listener.port))
    if not tls:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context.wrap_socket(plain)


if __name__ == "__main__":
    _main()
