"""The programs of a sandbox as data: versions, sources and build options."""

import hashlib
import platform
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

CONTROL_PLANE: Final = (
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kwokctl", "kubectl", "helm",
)  # fmt: skip
# Of each minor version of Kubernetes there is one.
BY_MINOR: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_MACHINES: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One program.

    - `name`: its name.
    - `version`: its version, as its project writes it.
    - `os`: operating system, as Go names it.
    - `arch`: architecture, as Go names it.
    - `folder`: folder of its go.mod, in gomod/.
    - `source`: folder of its package, in gomod/, if it is another one.
    - `package`: its Go package.
    - `ldflags`: linker flags.
    - `release`: URL of its release; empty if its project publishes none.
    - `checksum`: URL of a text with the release's SHA-256; empty if there is none.
    - `digests`: URL of GitHub's API about the release, if there is no such text.
    - `member`: its path in the release's archive; empty if the release is the program itself.
    - `modules`: start of the SHA-256 of its Go module's files.
    - `chart`: its project's Helm chart, a folder of its Go module that is kept next to the program.
    - `version_arguments`: arguments with which it prints its version; empty if a copy on PATH does not count.
    """

    name: str
    version: str
    os: str
    arch: str
    folder: str
    package: str
    ldflags: str = ""
    release: str = ""
    checksum: str = ""
    digests: str = ""
    member: str = ""
    modules: str = ""
    source: str = ""
    chart: str = ""
    version_arguments: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of its folder in the cache. Other module files mean another program."""
        return f"{self.unpinned_key}-{self.modules}" if self.modules else self.unpinned_key

    @property
    def unpinned_key(self) -> str:
        """The name of its folder in a cache of Dovetail 0.1, for any module files."""
        return f"{self.name}-{self.version}-{self.os}-{self.arch}"


def machine() -> tuple[str, str]:
    """Return this machine's operating system and architecture, as Go names them."""
    return platform.system().lower(), _MACHINES.get(platform.machine().lower(), platform.machine().lower())


def tool(name: str, *, kubernetes: str = "") -> Tool:
    """Return the named program for this machine; of that minor version of Kubernetes if it has several.

    Raises `KeyError` if it is not in the table.
    """
    found = table()[name]
    if not kubernetes or name not in BY_MINOR or kubernetes == minor_of(found.version):
        return found
    return _of_version(name, version=kubernetes_versions()[kubernetes])


def minor_of(version: str) -> str:
    """Return the minor version of Kubernetes: `1.36` for `v1.36.3`."""
    return ".".join(version.removeprefix("v").split(".")[:2])


@cache
def kubernetes_versions() -> dict[str, str]:
    """The version of the control plane for each minor version that a sandbox can run, oldest first."""
    usual = table()["kube-apiserver"].version
    found = {**_data()["kubernetes"], minor_of(usual): usual}
    return dict(sorted(found.items(), key=lambda item: [int(part) for part in item[0].split(".")]))


@cache
def table() -> dict[str, Tool]:
    """All programs for this machine, by name."""
    return {
        name: _tool(name, package=package, module=module, folder=module.get("folder", key))
        for key, module in _data()["module"].items()
        for name, package in module["tools"].items()
    }


@cache
def module_digest(folder: str, *, source: str = "") -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a Go module's files, with their names."""
    digest = hashlib.sha256()
    modules = resources.files("dovetail_sandbox").joinpath("gomod")
    files = [*modules.joinpath(folder).iterdir(), *([modules.joinpath(source, "main.go")] if source else [])]
    for path in sorted(files, key=lambda p: p.name):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


@cache
def _data() -> dict[str, Any]:
    text = resources.files("dovetail_sandbox").joinpath("data/tools.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _of_version(name: str, *, version: str) -> Tool:
    """The program in another version of Kubernetes than the usual one."""
    module = _data()["module"]["kubernetes"]
    folder = f"kubernetes-{minor_of(version)}"
    module_of_version = {**module, "version": version}
    return _tool(name, package=module["tools"][name], module=module_of_version, folder=folder, source="kubernetes")


def _tool(name: str, *, package: str, module: dict[str, Any], folder: str, source: str = "") -> Tool:
    os_name, arch = machine()
    version = module["version"]
    facts = {"name": name, "version": version, "v": version.removeprefix("v"), "os": os_name, "arch": arch}

    def text(key: str) -> str:
        return str(module.get(key, "")).format(**facts)

    return Tool(
        name=name,
        version=version,
        os=os_name,
        arch=arch,
        folder=folder,
        modules=module_digest(folder, source=source),
        source=source,
        package=package,
        ldflags=text("ldflags"),
        release=text("release"),
        checksum=text("checksum"),
        digests=text("digests"),
        member=text("member"),
        chart=text("chart"),
        version_arguments=tuple(module.get("version_arguments", ())),
    )
