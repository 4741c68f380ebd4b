"""The configuration of a running program, which follows the release's ConfigMap."""

import logging
from collections.abc import Callable

from dovetail import names
from dovetail.api.builtin import ConfigMap
from dovetail.api.meta import EventType
from dovetail.api.resources import CONFIGMAPS
from dovetail.config.changes import change_of
from dovetail.config.errors import ConfigError
from dovetail.config.loading import parse_settings
from dovetail.config.settings import Settings
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.logs import get_logger

log = get_logger("dovetail.settings")


class LiveSettings:
    """What a program runs with: what it started with, and the live keys as the ConfigMap says now.

    The ConfigMap takes the place of the file that the program has read at its start: environment and command line
    (`log_level`) take precedence over both. An invalid configuration changes nothing, and is logged. Without a
    ConfigMap nothing changes.
    """

    def __init__(self, client: Client, *, namespace: str, settings: Settings, log_level: str | None = None) -> None:
        """`namespace` is that of the release, and `settings` are those of the start."""
        self.settings = settings
        self._client = client
        self._namespace = namespace
        self._overrides = {"log_level": log_level}
        # What needs a restart, and a refusal, are logged once.
        self._said = ""

    async def run(self, *, apply: Callable[[Settings], None]) -> None:
        """Follow the ConfigMap until cancelled. Each change that counts goes to `apply`."""

        def look(event: EventType, found: ConfigMap) -> None:
            if event != "DELETED":
                self._read(found.data.get(names.CONFIG_FILE, ""), apply=apply)

        reflector = Reflector(
            self._client,
            resource=CONFIGMAPS,
            as_type=ConfigMap,
            on_event=look,
            namespace=self._namespace,
            field_selector=f"metadata.name={names.CONFIG}",
        )
        await reflector.run()

    def _read(self, text: str, *, apply: Callable[[Settings], None]) -> None:
        try:
            read = parse_settings(text, origin=f"ConfigMap {names.CONFIG}", overrides=self._overrides)
        except ConfigError as error:
            self._say("the new configuration is refused, the one before stays", problem=str(error))
            return
        change = change_of(self.settings, read=read)
        if change.waiting:
            self._say("some keys of the new configuration need a restart", keys=", ".join(change.waiting))
        if not change.taken:
            return
        apply(change.settings)
        self.settings = change.settings
        logging.getLogger().setLevel(change.settings.log_level.upper())
        log.info("the configuration has changed", keys=", ".join(change.taken))

    def _say(self, event: str, **values: str) -> None:
        said = f"{event}: {values}"
        if said != self._said:
            self._said = said
            log.warning(event, **values)
