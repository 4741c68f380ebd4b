"""The gateway that the current kubeconfig leads to: that of this machine's queue, of a sandbox, or of a cluster.

The kubeconfig's context names it in the extension `dovetail.dev/gateway`, and the token is the user's.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dovetail.sdk.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A gateway, and how to talk to it.

    url         its URL, without a slash at its end; empty if a kubeconfig names none
    token       gives the token of each request
    namespace   that of new jobs
    source      what says so, for people
    local_data  the folder of this machine's queue; None elsewhere
    """

    url: str
    token: Callable[[], str]
    namespace: str
    source: str = ""
    local_data: Path | None = None


def find() -> Connection | None:
    """What the kubeconfig of `$KUBECONFIG`, of this machine's queue or of the user says; None without one.

    Raises `SettingsError` for one that cannot be used.
    """
    # 0.05 s, which a script with DOVETAIL_GATEWAY does without.
    from dovetail.kube.auth.connection import default_kubeconfigs, load_connection
    from dovetail.kube.errors import KubeconfigError

    if not os.environ.get("KUBECONFIG") and not any(path.exists() for path in default_kubeconfigs()):
        return None
    try:
        made = load_connection()
    except KubeconfigError as error:
        raise SettingsError(str(error)) from error
    return Connection(
        url=made.gateway_url,
        token=lambda: made.read_token() or "",
        namespace=made.namespace,
        source=made.source,
        local_data=made.local_data,
    )
