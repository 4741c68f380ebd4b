"""What `dovetail config show` and `list` print."""

import sys
from collections.abc import Mapping
from typing import Any, Final

from dovetail.kube.errors import KubeconfigError, KubeError
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.submit.profiles import effective, user_file
from dovetail_cli.submit.profiles.edit import entries_of
from dovetail_cli.submit.profiles.profile import encode
from dovetail_cli.ui import output
from dovetail_cli.ui.error_messages import explain

_COLUMNS: Final = ("KEY", "VALUE", "FROM")


def show(name: str | None, *, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """The values that count for gbatch.

    Without a cluster only the user's, with a line on standard error.
    """

    async def look(cluster: Cluster) -> effective.Effective:
        return await effective.effective(cluster, name=name)

    # What is wrong with the user's own file is no matter of the cluster.
    own = effective.of_user(name)
    try:
        found = work(look, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
    except (KubeconfigError, KubeError) as error:
        print(f"dovetail: without the namespace's defaults: {explain(error)}", file=sys.stderr)
        found = own
    return _rendered(found, form=form)


def listing(profiles: user_file.Profiles, *, form: str) -> str:
    """A row for each profile; the current one is marked."""
    names = dict.fromkeys([*profiles.by_name, profiles.chosen(None)[0]])
    current = profiles.chosen(None)[0]
    if form in {"json", "yaml"}:
        rows = [{"name": name, "current": name == current, "values": _values(profiles, name=name)} for name in names]
        return output.render(rows, columns=(), form=form)
    shown = [{"PROFILE": name, "CURRENT": "*" if name == current else "", "KEYS": _keys(profiles, name=name)}
             for name in names]  # fmt: skip
    return output.render(shown, columns=("PROFILE", "CURRENT", "KEYS"), form=form)


def _rendered(found: effective.Effective, *, form: str) -> str:
    document = {
        "profile": found.name,
        "file": str(user_file.location()),
        "values": encode(found.profile),
        "from": dict(found.sources),
    }
    match form:
        case "json":
            return output.as_json(document)
        case "yaml":
            return output.as_yaml(document)
        case _:
            rows = [
                {"KEY": key, "VALUE": value, "FROM": found.sources[key.partition(".")[0]]}
                for key, value in entries_of(found.profile).items()
            ]
            return f"Profile {found.name}\n{output.render(rows, columns=_COLUMNS, form=form)}"


def _values(profiles: user_file.Profiles, *, name: str) -> Mapping[str, Any]:
    return encode(profiles.by_name[name]) if name in profiles.by_name else {}


def _keys(profiles: user_file.Profiles, *, name: str) -> str:
    return ",".join(_values(profiles, name=name))
