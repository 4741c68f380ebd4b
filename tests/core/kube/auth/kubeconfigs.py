"""Kubeconfigs for tests: one context, cluster and user of one name in a file."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def make_kubeconfig(path: Path, *, name: str = "main", user: Any = None, **cluster: Any) -> Path:
    """A kubeconfig with one context, cluster and user, all of one name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **cluster}}],
        "users": [{"name": name, "user": {"token": f"token-{name}"} if user is None else user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def make_plugin(
    path: Path,
    *,
    command: str = "/bin/sh",
    args: list[str] | None = None,
    cluster: Mapping[str, Any] | None = None,
    **plugin: Any,
) -> Path:
    """A kubeconfig whose user logs in by an exec plugin."""
    entry = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never", **plugin}
    return make_kubeconfig(path, user={"exec": entry if args is None else {**entry, "args": args}}, **cluster or {})


def encode(text: str) -> str:
    """The value of a `*-data` field."""
    return base64.b64encode(text.encode()).decode()
