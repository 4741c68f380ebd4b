"""gbatch's --notify-email and --notify-on: recipients and events of notifications. Pure."""

import re
from collections.abc import Sequence
from typing import Final, get_args

from dovetail.api.gpujob import ADDRESS_PATTERN, ENDS, MOST_ADDRESSES, NotifyEvent, NotifySpec
from dovetail_cli.ui.errors import UsageError

_EVENTS: Final[dict[str, tuple[NotifyEvent, ...]]] = {
    **{event.lower(): (event,) for event in get_args(NotifyEvent)},
    "finished": ENDS,
    "all": get_args(NotifyEvent),
}
_ALLOWED: Final = ", ".join([*get_args(NotifyEvent), "Finished (however it ends)", "All"])


def read(emails: Sequence[str], *, events: Sequence[str]) -> NotifySpec | None:
    """The recipients and events in the options; None without recipients. Raises `UsageError`."""
    addresses = _words(emails)
    for address in addresses:
        if not re.fullmatch(ADDRESS_PATTERN, address):
            raise UsageError(f'--notify-email "{address}": write a mail address such as ada@example.org')
    if len(addresses) > MOST_ADDRESSES:
        raise UsageError(f"--notify-email: {len(addresses)} addresses, and {MOST_ADDRESSES} are allowed")
    on: list[NotifyEvent] = []
    for word in _words(events):
        if word.lower() not in _EVENTS:
            raise UsageError(f'--notify-on "{word}": allowed are {_ALLOWED}')
        on += _EVENTS[word.lower()]
    if not addresses and not on:
        return None
    return NotifySpec(emails=addresses, events=list(dict.fromkeys(on)))


def _words(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(word.strip() for text in texts for word in text.split(",") if word.strip()))
