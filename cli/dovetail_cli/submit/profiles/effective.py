"""The profile that counts for a command: the user's over the namespace's.

`effective` asks the API server for the namespace's defaults; `of_user` reads only the user's file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dovetail.api.builtin import ConfigMap
from dovetail.api.resources import CONFIGMAPS
from dovetail.formats.yaml_text import YAMLTextError, load_yaml
from dovetail.kube.errors import Forbidden, NotFound
from dovetail_cli.cluster import gateway as gateways
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit.profiles import user_file
from dovetail_cli.submit.profiles.profile import KEYS, Profile, attribute, decode, encode, over
from dovetail_cli.ui.errors import UsageError

# The ConfigMap of a namespace's defaults, and its key.
_NAME: Final = "dovetail-profile"
_KEY: Final = "profile.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """A profile, and where its values come from.

    name      the user's profile
    profile   all values together
    sources   for each key that is set, the file, the object, or both
    """

    name: str
    profile: Profile
    sources: Mapping[str, str] = field(default_factory=dict)


def of_user(name: str | None = None) -> Effective:
    """The user's profile alone, by default the current one.

    Raises `MissingError` and `UsageError`.
    """
    path = user_file.location()
    chosen, profile = user_file.load(path).chosen(name)
    return Effective(name=chosen, profile=profile, sources=dict.fromkeys(encode(profile), str(path)))


async def effective(cluster: Cluster, *, name: str | None = None) -> Effective:
    """The user's profile over the defaults of the cluster's namespace.

    Raises `MissingError` for a profile that does not exist, and `UsageError` for a value that is not allowed.
    """
    own = of_user(name)
    defaults = await _of_namespace(cluster)
    if defaults is None:
        return own
    theirs = _source(cluster.namespace)
    sources = dict(own.sources)
    for key in encode(defaults):
        merged = key in sources and isinstance(getattr(defaults, attribute(key)), Mapping | tuple)
        sources[key] = f"{sources[key]} and {theirs}" if merged else sources.get(key, theirs)
    ordered = {key: sources[key] for key in KEYS if key in sources}
    return Effective(name=own.name, profile=over(own.profile, second=defaults), sources=ordered)


async def _of_namespace(cluster: Cluster) -> Profile | None:
    """The defaults that an administrator keeps for the namespace in a ConfigMap.

    None if it has none, or the user may not read ConfigMaps. Raises `UsageError` for a value that is not allowed.
    """
    try:
        found = await cluster.client.get(CONFIGMAPS, name=_NAME, as_type=ConfigMap, namespace=cluster.namespace)
    except (NotFound, Forbidden):
        return None
    where = _source(cluster.namespace)
    if _KEY not in found.data:
        raise UsageError(f"{where}: it has no key {_KEY}, which holds the profile")
    try:
        values = load_yaml(found.data[_KEY])
    except YAMLTextError as error:
        raise UsageError(f"{where}: {_KEY} is not YAML ({error})") from error
    return decode(values, where=where)


def _source(namespace: str) -> str:
    """What messages call the object."""
    return f"ConfigMap {namespace}/{_NAME}"


async def gateway_of(cluster: Cluster, *, option: str | None = None, profile: str | None = None) -> str | None:
    """The URL of the cluster's gateway, if the option, the environment or the profile names it."""
    return gateways.address(option, profile=(await effective(cluster, name=profile)).profile.gateway)
