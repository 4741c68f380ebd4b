"""The settings of `gpu_config.yaml`: all keys, and what follows from several of them."""

from typing import Final

from pydantic import ConfigDict

from dovetail.config.groups import LIVE
from dovetail.config.keys.devices import DeviceKeys
from dovetail.config.keys.placement import PlacementKeys
from dovetail.config.keys.queue import QueueKeys
from dovetail.config.keys.records import RecordKeys
from dovetail.config.keys.reports import ReportKeys
from dovetail.config.keys.sharing import SharingKeys
from dovetail.engine.model.settings import Limits
from dovetail.gpu import models

ENV_PREFIX: Final = "DOVETAIL_"


# pydantic takes the fields of the last class first: files and tables begin with the devices.
class Settings(RecordKeys, QueueKeys, SharingKeys, PlacementKeys, ReportKeys, DeviceKeys):
    """All keys of `gpu_config.yaml`. A direct instance has the defaults and the given values."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @property
    def limits(self) -> Limits:
        """How much of a device may be promised, and to how many tenants."""
        return Limits(
            guard_fraction=self.guard_fraction,
            turns_per_device=self.tenants_per_device,
            training_per_device=self.training_per_device,
            inference_per_device=self.inference_per_device,
            memory_specs=models.by_family(self.gpu_memory_specs),
        )


def live_keys() -> list[str]:
    """The keys that operator, extender and gateway take while they run; the others need a restart."""
    return [
        name
        for name, field in Settings.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get(LIVE)
    ]
