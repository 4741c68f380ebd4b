"""Which packages are judged, and where their tests are."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.mutants.catalogue import Mutant

# The table of docs/testing.md has a row for each. All of them decide; packages that only carry out are left out.
PACKAGES: Final = (
    "dovetail.engine",
    "dovetail.queue",
    "dovetail.fragmentation",
    "dovetail.jobs.guests",
    "dovetail.pods",
    "dovetail.gpu",
    "dovetail.cluster",
    "dovetail.audit",
    "dovetail.query",
    "dovetail.kube.leader_election",
    "dovetail_operator.arrays",
    "dovetail_operator.devices",
    "dovetail_operator.job",
    "dovetail_operator.lifecycle",
    "dovetail_operator.manifests",
    "dovetail_operator.queue",
    "dovetail_operator.state",
    "dovetail_operator.watchers.guests",
    "dovetail_operator.writes",
    "dovetail.sdk",
    "dovetail_extender.bind",
    "dovetail_extender.decide",
    "dovetail_extender.holds",
    "dovetail_agent.guards",
    "dovetail_agent.mps.limits",
    "dovetail_agent.report",
    "dovetail_gateway.access",
    "dovetail_local_node",
    "dovetail_webhook",
)
# All tests of the deployable: a rule of one package may have its test in the folder of another. Of two names the longer
# one counts.
_FOLDERS: Final = {
    "dovetail": "tests/core",
    "dovetail.sdk": "tests/sdk",
    "dovetail_operator": "tests/operator_",
    "dovetail_extender": "tests/extender",
    "dovetail_agent": "tests/agent",
    "dovetail_cli": "tests/cli",
    "dovetail_gateway": "tests/gateway",
    "dovetail_webhook": "tests/webhook",
    "dovetail_certificates": "tests/webhook",
    "dovetail_local_node": "tests/local_node",
}


def folder_of(package: str) -> str:
    """The tests of the deployable that a package belongs to."""
    return next(_FOLDERS[name] for name in (package, *_above(package)) if name in _FOLDERS)


def _above(package: str) -> Iterator[str]:
    """The packages that a package is in, the closest first."""
    while "." in package:
        package = package.rpartition(".")[0]
        yield package


def tests_of(mutants: Iterable[Mutant]) -> Sequence[str]:
    """The test files that import one of the mutated modules, those that are named after it first."""
    found: dict[str, None] = {}
    for module in dict.fromkeys(each.module for each in mutants):
        files = sorted(Path(folder_of(module)).rglob("test_*.py"))
        package, _, name = module.rpartition(".")
        imports = (f"from {module} import", f"from {package} import {name}\n")
        naming = [path for path in files if any(words in path.read_text() for words in imports)]
        found |= dict.fromkeys(str(path) for path in sorted(naming, key=lambda path: path.stem != f"test_{name}"))
    return list(found)
