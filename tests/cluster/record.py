"""The requests of the chart's accounts, by the API server's own record: one file for each sandbox of a test run.

The sandboxes of a run may end in different processes of pytest, so each leaves its record in a folder of the run.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dovetail_sandbox.cluster import Cluster
from tests.chart.rights import Right, rights_in

_ACCOUNT: Final = "system:serviceaccount:dovetail-system:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The rights that the chart granted, those that requests used, and those that requests lacked."""

    granted: frozenset[Right]
    used: frozenset[Right]
    refused: frozenset[Right]

    def __or__(self, other: "Record") -> "Record":
        return Record(
            granted=self.granted | other.granted,
            used=self.used | other.used,
            refused=self.refused | other.refused,
        )


def keep(cluster: Cluster, *, folder: Path) -> None:
    """Leave what a sandbox that runs has recorded in the folder of the run's records."""
    folder.mkdir(parents=True, exist_ok=True)
    write(read_log(cluster), path=folder / f"{cluster.name}.json")


def read_log(cluster: Cluster) -> Record:
    """What a sandbox that runs has recorded so far."""
    used, refused = set(), set()
    for event in _events(cluster.request_log):
        used.add(right := _right_of(event))
        if event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid":
            refused.add(right)
    rendered = (cluster.folder / "rendered.yaml").read_text(encoding="utf-8")
    return Record(granted=frozenset(rights_in(rendered)), used=frozenset(used), refused=frozenset(refused))


def write(record: Record, *, path: Path) -> None:
    """Replaces the file at once: another process sees all of it or nothing."""
    rights = {name: [asdict(right) for right in sorted(getattr(record, name))] for name in Record.__slots__}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(rights), encoding="utf-8")
    fresh.replace(path)


def read(path: Path) -> Record:
    """A record that `write` left."""
    rights = json.loads(path.read_text(encoding="utf-8"))
    return Record(**{name: frozenset(Right(**each) for each in listed) for name, listed in rights.items()})


def _events(log: Path) -> Iterator[dict[str, Any]]:
    """The requests of the programs themselves, without those that a test made with one of their tokens."""
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("}\n"):
                event: dict[str, Any] = json.loads(line)
                if event.get("userAgent", "").startswith("dovetail-") and "objectRef" in event:
                    yield event


def _right_of(event: dict[str, Any]) -> Right:
    """The right that a request took."""
    about = event["objectRef"]
    sub = f"/{about['subresource']}" if about.get("subresource") else ""
    return Right(
        account=event["user"]["username"].removeprefix(_ACCOUNT),
        resource=about["resource"] + sub,
        verb=event["verb"],
        group=about.get("apiGroup", ""),
        name=about.get("name", ""),
        namespace=about.get("namespace", ""),
    )
