"""A configuration that changes while a program runs: what it takes at once, and what waits for a restart. Pure."""

from dataclasses import dataclass

from dovetail.config.settings import Settings, live_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a new configuration changes.

    settings  what counts from now on
    taken     the keys that count at once
    waiting   the keys that differ from what the program runs with, and need a restart
    """

    settings: Settings
    taken: tuple[str, ...]
    waiting: tuple[str, ...]


def change_of(current: Settings, *, read: Settings) -> Change:
    """What changes for a program that runs with `current` when the configuration says `read`."""
    differs = [key for key in Settings.model_fields if getattr(current, key) != getattr(read, key)]
    live = live_keys()
    taken = tuple(key for key in differs if key in live)
    settings = current.model_copy(update={key: getattr(read, key) for key in taken})
    return Change(settings=settings, taken=taken, waiting=tuple(key for key in differs if key not in live))
