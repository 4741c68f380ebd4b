"""The programs of a cluster as commands. Each is an extra of the package; without it, one sentence says what to type.

A program is loaded when it is called: this module knows its name alone.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, requires
from typing import Final

PACKAGE: Final = "dovetail-gpu"


def missing(name: str, *, module: str | None, extra: str) -> str:
    """What to say where a program or a command lacks another package."""
    return f"{name} needs {module}, which is not installed: pip install '{PACKAGE}[{extra}]'"


def lacking(name: str, *, extra: str) -> str:
    """What to say where a command lacks a package of its extra; empty if all are installed."""
    package = _first_missing(extra)
    return "" if package is None else missing(name, module=package, extra=extra)


def _first_missing(extra: str) -> str | None:
    of_extra = (text for text in requires(PACKAGE) or () if re.search(rf"extra == ['\"]{extra}['\"]", text))
    names = (re.match(r"[A-Za-z0-9._-]+", text) for text in of_extra)
    return next((name[0] for name in names if name is not None and not _is_installed(name[0])), None)


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def is_ours(module: str | None) -> bool:
    """Whether a module that cannot be found is of this package: then the fault is ours, and no extra helps."""
    return (module or "").startswith("dovetail")


def _program(name: str, *, extra: str, main: str) -> Callable[[], object]:
    """The entry point `name`, with `main` as `module:function`."""

    def run() -> object:
        module, _, function = main.partition(":")
        try:
            loaded = import_module(module)
        except ModuleNotFoundError as error:
            if is_ours(error.name):
                raise
            sys.stderr.write(f"dovetail: {missing(name, module=error.name, extra=extra)}\n")
            return 1
        return getattr(loaded, function)()

    return run


operator = _program("dovetail-operator", extra="operator", main="dovetail_operator.main:main")
extender = _program("dovetail-extender", extra="extender", main="dovetail_extender.main:main")
agent = _program("dovetail-agent", extra="agent", main="dovetail_agent.main:main")
mps = _program("dovetail-mps", extra="agent", main="dovetail_agent.mps.main:main")
mps_csi = _program("dovetail-mps-csi", extra="agent", main="dovetail_agent.mps.volume_driver.main:main")
mps_shm = _program("dovetail-mps-shm", extra="agent", main="dovetail_agent.mps.volume_driver.shared_memory_main:main")
webhook = _program("dovetail-webhook", extra="webhook", main="dovetail_webhook.main:main")
certificates = _program("dovetail-certificates", extra="certificates", main="dovetail_certificates.main:main")
trust = _program("dovetail-trust", extra="certificates", main="dovetail_certificates.hook:main")
gateway = _program("dovetail-gateway", extra="gateway", main="dovetail_gateway.main:main")
local_node = _program("dovetail-local-node", extra="sandbox", main="dovetail_local_node.main:main")
