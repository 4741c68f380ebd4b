"""Which presets the doctor names for the nodes of a cluster, and what it says is missing for each."""

from typing import Any

import pytest

from dovetail.cluster.picture import Picture
from dovetail.query.doctor import diagnosis
from tests.core.query.doctor.test_diagnosis import FORBIDDEN, GONE, leases, namespace, node, picture, report, wrong

DEFAULT_CLASS = [{"metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}]
READY = {
    "nodes": [node("a"), node("b")],
    "storage_classes": DEFAULT_CLASS,
    "pod_monitors": [],
    "namespaces": [namespace("monitoring"), namespace("dovetail-nodes", enforce="privileged")],
}
NOTHING_MISSING = "nothing is missing that can be seen here"


def notes(taken: Picture, *, only: str | None = None) -> dict[str, str]:
    """The message of each preset that fits."""
    found = [each for each in diagnosis.judge(taken, node=only) if each.check == "preset"]
    assert {each.level for each in found} <= {"ok"}
    return {each.subject: each.message for each in found}


def test_nodes_that_dovetail_manages_fit_production_and_sharing() -> None:
    found = notes(picture(**READY))
    assert found["production"] == (
        f"fits (2 nodes that Dovetail manages); {NOTHING_MISSING} (docs/presets/production.md)"
    )
    assert found["sharing"] == (
        f"fits (2 nodes that Dovetail manages, if jobs share devices); {NOTHING_MISSING} (docs/presets/sharing.md)"
    )
    assert found.keys() == {"production", "sharing"}


def test_nodes_of_a_plugin_fit_vendor_and_both_kinds_fit_both() -> None:
    plugin = node("p", managed=False, nvidia_com__gpu="2")
    assert notes(picture(nodes=[plugin], gpunodes=[])).keys() == {"vendor"}
    assert notes(picture(nodes=[node(), plugin])).keys() == {"production", "sharing", "vendor"}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"gpunodes": [report(provider="simulated")]}, "1 simulated"),
        ({"nodes": [node("a", managed=False)], "gpunodes": []}, "no node has GPUs"),
        ({"nodes": [node("a", managed=False)], "gpunodes": GONE}, "no node has GPUs"),
    ],
    ids=["simulated nodes", "no GPUs", "before the installation"],
)
def test_without_real_devices_an_evaluation_fits_and_lacks_nothing(changes: dict[str, Any], found: str) -> None:
    assert notes(picture(**changes)) == {
        "evaluation": f"fits ({found}); {NOTHING_MISSING} (docs/presets/evaluation.md)"
    }


@pytest.mark.parametrize(
    ("changes", "preset", "missing"),
    [
        ({"nodes": [node("a")]}, "production", "a second node for the standbys"),
        ({"pod_monitors": GONE}, "production", "the CRDs of the Prometheus operator"),
        (
            {"namespaces": [namespace("dovetail-nodes", enforce="privileged")]},
            "production", "the namespace monitoring, from which Prometheus may read the metrics",
        ),
        ({"storage_classes": []}, "sharing", "a default StorageClass for the history"),
        (
            {"namespaces": []},
            "sharing", "the namespace dovetail-nodes with the label pod-security.kubernetes.io/enforce=privileged",
        ),
        (
            {"namespaces": [namespace("dovetail-nodes", enforce="baseline")]},
            "sharing", "pod-security.kubernetes.io/enforce=privileged on the namespace dovetail-nodes",
        ),
        (
            {"nodes": [node("p", managed=False, nvidia_com__gpu="2")]},
            "vendor",
            "on p; agent.vendors.nvidia.enabled=true, for UUIDs, health and load on p",
        ),
        (
            {
                "nodes": [node("m", managed=False, amd_com__gpu="8"), node("p", managed=False, nvidia_com__gpu="2")],
                "gpunodes": [report("p")],
            },
            "vendor",
            "on m, p; agent.vendors.amd.enabled=true, for UUIDs, health and load on m",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_for_a_preset_is_named(changes: dict[str, Any], preset: str, missing: str) -> None:
    found = notes(picture(**READY | changes))[preset]
    assert "; missing: " in found
    assert f"{missing} (docs/presets/{preset}.md)" in found


def test_what_may_not_be_read_is_not_called_missing() -> None:
    unseen = {"storage_classes": FORBIDDEN, "pod_monitors": FORBIDDEN, "namespaces": FORBIDDEN}
    assert all(NOTHING_MISSING in each for each in notes(picture(**READY | unseen)).values())


@pytest.mark.parametrize("unseen", ["nodes", "gpunodes"])
def test_without_the_right_to_see_nodes_no_preset_is_named(unseen: str) -> None:
    assert notes(picture(**READY | {unseen: FORBIDDEN})) == {}


def test_a_look_at_one_node_names_no_preset() -> None:
    assert notes(picture(**READY), only="a") == {}


def test_where_plugins_serve_all_gpus_the_missing_runtime_class_is_in_order() -> None:
    plugin = node("p", managed=False, nvidia_com__gpu="2")
    for nodes, level in (
        ([plugin], "ok"),
        ([plugin, node()], "error"),
        ([], "error"),
        ([node("cpu", managed=False)], "error"),
    ):
        judged = diagnosis.judge(picture(nodes=nodes, runtime_class=GONE))
        assert [each.level for each in judged if each.check == "runtime-class"] == [level]


def test_an_attached_release_needs_no_scheduler_of_its_own_and_names_the_preset() -> None:
    attached = {"metadata": {"annotations": {"dovetail.dev/attached": "true"}}, "value": 0}
    without = {"scheduler": GONE}
    taken = picture(priority_class=attached, leases=leases(**without))
    assert wrong(taken) == []
    assert notes(taken)["attach"] == (
        f"fits (the chart runs no kube-scheduler); {NOTHING_MISSING} (docs/presets/attach.md)"
    )
    silent = picture(priority_class=attached, leases=leases(scheduler=GONE, extender=GONE))
    assert "missing: an extender that holds its Lease" in notes(silent)["attach"]
