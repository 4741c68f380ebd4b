"""The defaults of a namespace: a ConfigMap that its administrator keeps."""

from typing import Final

from dovetail.api.builtin import ConfigMap
from dovetail.api.resources import CONFIGMAPS
from dovetail.formats.yaml_text import YAMLTextError, load_yaml
from dovetail.kube.errors import Forbidden, NotFound
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit.profiles.profile import Profile, decode
from dovetail_cli.ui.errors import UsageError

NAME: Final = "dovetail-profile"
KEY: Final = "profile.yaml"


async def read(cluster: Cluster) -> Profile | None:
    """The namespace's defaults; None if it has none, or the user may not read ConfigMaps.

    Raises `UsageError` for a value that is not allowed.
    """
    try:
        found = await cluster.client.get(CONFIGMAPS, name=NAME, as_type=ConfigMap, namespace=cluster.namespace)
    except (NotFound, Forbidden):
        return None
    where = source(cluster.namespace)
    if KEY not in found.data:
        raise UsageError(f"{where}: it has no key {KEY}, which holds the profile")
    try:
        values = load_yaml(found.data[KEY])
    except YAMLTextError as error:
        raise UsageError(f"{where}: {KEY} is not YAML ({error})") from error
    return decode(values, where=where)


def source(namespace: str) -> str:
    """What messages call the object."""
    return f"ConfigMap {namespace}/{NAME}"
