"""The answer about the caller. Types only."""

from dovetail.answers import Row


class Me(Row, frozen=True, kw_only=True):
    """Who the API server says you are. `everywhere` says whether you may list the GPUJobs of all namespaces."""

    username: str
    groups: list[str]
    everywhere: bool
    namespaces: list[str]
    expires_at: str | None
