"""Which minor version of Kubernetes a sandbox runs, and what goes with it. Pure."""

from dovetail_sandbox.errors import InvalidInputError, SandboxError
from dovetail_sandbox.programs import catalog


def chosen(minor: str | None, *, local_node: bool = False, real_node: bool = False) -> str:
    """Return a minor version that a sandbox can run: the usual one for None.

    Raises `InvalidInputError` for an unknown one, and for one that cannot have such a node.
    """
    usual = catalog.minor_of(catalog.tool("kube-apiserver").version)
    if minor is None:
        return usual
    known = list(catalog.kubernetes_versions())
    if minor not in known:
        raise InvalidInputError("kubernetes", value=minor, allowed=f"one of {', '.join(known)}")
    if local_node and minor != usual:
        # etcd's data outlive the sandbox, and an older API server may not read what a newer one wrote.
        raise InvalidInputError("kubernetes", value=f"{minor} with --local", allowed=usual)
    kubelet = catalog.minor_of(catalog.tool("kubelet").version)
    if real_node and known.index(minor) < known.index(kubelet):
        # https://kubernetes.io/releases/version-skew-policy: kubelet must not be newer than kube-apiserver.
        raise InvalidInputError("kubernetes", value=f"{minor} with --real-node", allowed=f"{kubelet} or newer")
    return minor


def check_running(name: str, *, running: str, wanted: str | None) -> None:
    """Raise `SandboxError` if a sandbox that is up runs another minor version than the wanted one."""
    if wanted is not None and running not in {"", wanted}:
        raise SandboxError(
            f"Sandbox {name!r} is up with Kubernetes {running}. For {wanted}, use another name, or end it first: "
            f"dovetail sandbox down --name {name}"
        )
