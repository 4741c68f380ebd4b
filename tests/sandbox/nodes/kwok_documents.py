"""The configuration that kwokctl gets, as documents."""

from pathlib import Path
from typing import Any

import yaml

from dovetail_sandbox.nodes import kwok

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl")


def configured(
    *, nodes: int = 1, memory_gib: float = 0.0, lasting: Path | None = None, feature_gates: str = ""
) -> dict[str, Any]:
    """The first document, for a sandbox with so many simulated nodes."""
    text = kwok.configuration(
        ports=dict.fromkeys(kwok.PORTS, 1),
        binaries={name: Path(name) for name in PROGRAMS},
        kube_version="v1.36.3",
        pki=Path("pki"),
        access=kwok.Access(
            credential=Path("credential"), admission=Path("admission.yaml"), user_token=Path("user-token.csv")
        ),
        real_node=False,
        nodes=nodes,
        memory_gib=memory_gib,
        lasting=lasting,
        feature_gates=feature_gates,
    )
    found: dict[str, Any] = next(yaml.safe_load_all(text))
    return found
