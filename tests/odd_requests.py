"""Requests that no client of ours sends, such as those that a proxy would read in another way, and what is answered."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Odd:
    """The bytes, and the statuses of the answers until the server closes."""

    sent: bytes
    answers: list[int]


JSON = "Content-Type: application/json\r\n"
CLOSE = "Connection: close\r\n"


def post(path: str, body: bytes, *, version: str = "1.1", headers: str = CLOSE) -> bytes:
    """A request with a length."""
    return head(path, f"Content-Length: {len(body)}\r\n{headers}", version=version) + body


def head(path: str, headers: str, *, version: str = "1.1") -> bytes:
    """A request's head with these lines of headers."""
    return f"POST {path} HTTP/{version}\r\nHost: localhost\r\n{JSON}{headers}\r\n".encode()


def statuses(heard: bytes) -> list[int]:
    """The status of each answer."""
    return [int(status) for status in re.findall(rb"HTTP/1\.\d (\d+) ", heard)]


def odd_requests(path: str, body: bytes) -> dict[str, Odd]:
    """Requests to a path that answers 200 to this body and 400 to another, and takes less than 9 GB."""
    chunks = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    chunked = "Transfer-Encoding: chunked\r\n"
    refused: dict[str, bytes] = {
        "a negative length": head(path, "Content-Length: -1\r\n"),
        "a length with a sign": head(path, f"Content-Length: +{len(body)}\r\n") + body,
        "a hexadecimal length": head(path, f"Content-Length: 0x{len(body):x}\r\n") + body,
        "a length with a space": head(path, f"Content-Length: 0 {len(body)}\r\n") + body,
        "a list of lengths": head(path, f"Content-Length: {len(body)}, {len(body)}\r\n") + body,
        "two lengths": head(path, f"Content-Length: {len(body)}\r\nContent-Length: 0\r\n") + body,
        "one length twice": head(path, f"Content-Length: {len(body)}\r\nContent-Length: {len(body)}\r\n") + body,
        "a length and chunks": head(path, f"Content-Length: {len(body)}\r\n{chunked}") + chunks,
        "chunks and a length": head(path, f"{chunked}Content-Length: {len(body)}\r\n") + chunks,
        "a space before the colon": head(path, f"Content-Length : {len(body)}\r\n") + body,
        "a header without a name": head(path, f": x\r\n{CLOSE}"),
        "a character that no name has": head(path, f"X@y z: 1\r\n{CLOSE}"),
        "a null in a header": head(path, f"X: a\0b\r\n{CLOSE}"),
        "a carriage return in a header": head(path, f"X: a\rContent-Length: {len(body)}\r\n{CLOSE}"),
        "an endless header": head(path, f"X: {'y' * 100_000}\r\n"),
        "an endless line": b"GET " + path.encode() + b"?" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        "two hosts": head(path, f"Host: evil.example\r\n{CLOSE}"),
        "no HTTP": b"\x00\x01\x02 nonsense\r\n\r\n",
        "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "a version that is none": post(path, body, version="1.2"),
    }
    return {name: Odd(sent=sent, answers=[400]) for name, sent in refused.items()} | {
        "HTTP/1.0": Odd(sent=post(path, body, version="1.0", headers=""), answers=[200]),
        "in chunks": Odd(sent=head(path, CLOSE + chunked) + chunks, answers=[200]),
        "an unknown coding": Odd(sent=head(path, "Transfer-Encoding: xchunked\r\n") + chunks, answers=[400]),
        "broken chunks": Odd(sent=head(path, chunked) + b"zz\r\n", answers=[400]),
        "four in one go": Odd(sent=post(path, body, headers="") * 3 + post(path, body), answers=[200, 200, 200, 200]),
        "one more after the last one": Odd(sent=post(path, body) * 2, answers=[400]),
        "called gzip, though it is plain": Odd(
            sent=post(path, body, headers=f"Content-Encoding: gzip\r\n{CLOSE}"), answers=[200]
        ),
        "nothing": Odd(sent=post(path, b""), answers=[400]),
        "no text": Odd(sent=post(path, b"\xff\xfe"), answers=[400]),
        "an endless length": Odd(sent=head(path, "Content-Length: 9999999999\r\n"), answers=[413]),
        "a folded header": Odd(
            sent=head(path, f"X: a\r\n Content-Length: 9\r\nContent-Length: {len(body)}\r\n{CLOSE}") + body,
            answers=[400],
        ),
        "bare line feeds": Odd(sent=post(path, body).replace(b"\r\n", b"\n"), answers=[400]),
        "another method": Odd(sent=f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{CLOSE}\r\n".encode(), answers=[405]),
        "another path": Odd(sent=head("/other", CLOSE), answers=[404]),
    }
