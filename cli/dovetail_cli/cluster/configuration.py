"""The configuration that the cluster's components run with, as far as the user may see it."""

from typing import Final

import yaml

from dovetail.api.builtin import ConfigMap
from dovetail.api.resources import CONFIGMAPS
from dovetail.config.settings import Settings
from dovetail.kube.errors import Forbidden, NotFound
from dovetail_cli.cluster.connection import RELEASE_NAMESPACE, Cluster

_CONFIG: Final = "dovetail-config"
_CONFIG_KEY: Final = "gpu_config.yaml"


async def settings_of(cluster: Cluster) -> Settings:
    """What the cluster's ConfigMap says; the defaults where it cannot be seen."""
    try:
        found = await cluster.client.get(CONFIGMAPS, _CONFIG, as_type=ConfigMap, namespace=RELEASE_NAMESPACE)
    except (NotFound, Forbidden):
        return Settings()
    return Settings.model_validate(yaml.safe_load(found.data.get(_CONFIG_KEY, "")) or {})
