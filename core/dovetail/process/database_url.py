"""The URL of a database: parsing, display without secrets, connection parameters, its dialect's INSERT. Pure."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sql
from sqlalchemy.engine import make_url

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

    Insert = sqlite.Insert | postgresql.Insert

LOCK_SECONDS: Final = 10
# libpq's settings for a network that drops packets. Without them a dead connection is noticed after hours, and all
# records wait for it.
_PATIENCE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "connect_timeout": LOCK_SECONDS,
        "tcp_user_timeout": 30_000,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }
)
_SECRET_WORDS: Final = ("pass", "secret", "token")
_MASK: Final = "***"


class DatabaseURLError(ValueError):
    """A URL that names no usable database: which part is wrong and why, without its password."""

    def __init__(self, where: str, *, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"{where}: {problem}")


def parse(url: str) -> sql.URL:
    """Parse the URL and set our driver. Raises `DatabaseURLError`."""
    try:
        parsed = make_url(url)
    except sql.exc.ArgumentError as error:
        raise DatabaseURLError("url", problem=str(error)) from error
    except ValueError as error:
        # The original message may contain a part of the password.
        problem = "the port is no number: in a password write %40 for @, %3A for : and %2F for /"
        raise DatabaseURLError("url", problem=problem) from error
    backend = parsed.get_backend_name()
    # libpq accepts both names.
    if backend in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite" or not parsed.database:
        raise DatabaseURLError(shown(parsed), problem="allowed are sqlite:///FILE and postgresql://…")
    return parsed


def shown(url: sql.URL) -> str:
    """The URL for users and logs, without passwords in front of the host or in the query."""
    masked = {name: _MASK if _is_secret(name, value=value) else value for name, value in url.query.items()}
    return url.set(query=masked).render_as_string().replace("%2A%2A%2A", _MASK)


def without_secrets(text: str, *, url: sql.URL) -> str:
    """A text from a driver or server, such as an error, without the URL's passwords."""
    for secret in _secrets(url):
        text = text.replace(secret, _MASK)
    return text


def connect_args(url: sql.URL) -> dict[str, Any]:
    """Parameters for PostgreSQL's driver in addition to the URL's, which take precedence.

    Over a network the connection uses TLS. With libpq's own default, `prefer`, an attacker in the network can claim
    that the server has no TLS and read everything. The certificate is checked only if the URL says sslmode=verify-full.
    """
    added = dict(_PATIENCE) if _is_local(url) else {**_PATIENCE, "sslmode": "require"}
    # A service file may set its own sslmode.
    known = {*url.query, *(["sslmode"] if "service" in url.query else [])}
    return {name: value for name, value in added.items() if name not in known}


def insert_of(url: sql.URL) -> "Callable[[sql.Table], Insert]":
    """The INSERT of the dialect, which has ON CONFLICT. The other is not loaded: PostgreSQL's takes 9 MiB."""
    if url.get_backend_name() == "sqlite":
        from sqlalchemy.dialects.sqlite import insert  # noqa: PLC0415

        return insert
    from sqlalchemy.dialects.postgresql import insert as of_postgresql  # noqa: PLC0415

    return of_postgresql


def _is_secret(name: str, *, value: str | tuple[str, ...]) -> bool:
    # libpq accepts a whole connection string instead of the database's name.
    return any(word in text.lower() for text in (name, *_texts(value)) for word in _SECRET_WORDS)


def _secrets(url: sql.URL) -> Iterator[str]:
    if url.password:
        yield str(url.password)
    for name, value in url.query.items():
        if _is_secret(name, value=value):
            yield from (text for text in _texts(value) if text)


def _is_local(url: sql.URL) -> bool:
    """Whether the server is reached without a network: by a file socket or on this machine."""
    said = url.query.get("hostaddr") or url.query.get("host") or url.host or ""
    hosts = [host for text in _texts(said) for host in text.split(",")]
    return all(_is_on_this_machine(host) for host in hosts)


def _is_on_this_machine(host: str) -> bool:
    # Empty is libpq's own socket, @ an abstract one.
    if not host or host[0] in "/@" or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _texts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
