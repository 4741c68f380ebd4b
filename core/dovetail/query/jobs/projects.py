"""Projects as a query or an option names them. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from dovetail.query.errors import InvalidQueryError

_PROJECT: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def check_project(text: str, *, field: str) -> str:
    """The name of a project. Raises `InvalidQueryError` for a text that no label can have."""
    if not _PROJECT.fullmatch(text):
        raise InvalidQueryError(
            f'{field} "{text}": write at most 63 letters, digits, ".", "_" or "-", a letter or digit at both ends'
        )
    return text


def parse_projects(texts: Iterable[str] | None, *, field: str) -> frozenset[str]:
    """The projects that texts such as `vision,speech` name; empty for None. Raises `InvalidQueryError`."""
    words = [word.strip() for text in texts or () for word in text.split(",") if word.strip()]
    return frozenset(check_project(word, field=field) for word in words)
