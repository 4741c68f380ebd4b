"""Times as the API writes them. Pure."""

from datetime import UTC, datetime


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as metav1.Time is written."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    """The time that RFC 3339 text says."""
    return datetime.fromisoformat(text)
