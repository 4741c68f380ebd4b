"""Workers that take a node each, by what kube-scheduler would refuse; and templates that are no pod's."""

from typing import Any

import pytest

from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.gpu.request import RequestError
from dovetail.pods.demand import ask_of_job
from tests.operator_.builders import make_job

HOST = "kubernetes.io/hostname"


def away_from(**term: Any) -> dict[str, Any]:
    """A template with an anti-affinity of its own, by node unless said otherwise."""
    terms = [{"topologyKey": HOST, **term}]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def listening(where: str = "containers", **port: Any) -> dict[str, Any]:
    return {where: [{"name": "main", "image": "busybox", "restartPolicy": "Always", "ports": [port]}]}


def is_apart(spec: dict[str, Any], *, workers: int = 2) -> bool:
    template = {
        "metadata": {"labels": {"app": "train"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **spec},
    }
    return ask_of_job(make_job("x", workers=workers, template=template), ranking=DEFAULT_RANKING).apart


SELECTED = {"matchLabels": {"app": "train"}}
APART = {
    "a label of its template": away_from(labelSelector=SELECTED),
    "the label that we write": away_from(labelSelector={"matchLabels": {"dovetail.dev/job": "x"}}),
    "the label that the Job controller writes": away_from(labelSelector={"matchLabels": {"job-name": "x"}}),
    "an expression": away_from(
        labelSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["serve", "train"]}]}
    ),
    "the absence of a label": away_from(
        labelSelector={"matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}
    ),
    "everybody": away_from(labelSelector={}),
    "everybody, by nulls": away_from(labelSelector={"matchLabels": None}, namespaces=None),
    "its namespace by name": away_from(labelSelector=SELECTED, namespaces=["other", "team"]),
    "all namespaces": away_from(labelSelector=SELECTED, namespaceSelector={}),
    "its namespace by name, and others by label": away_from(
        labelSelector=SELECTED, namespaces=["team"], namespaceSelector={"matchLabels": {"a": "b"}}
    ),
    "a label that it lacks is another": away_from(labelSelector=SELECTED, mismatchLabelKeys=["absent"]),
    "the number that it does not have yet": away_from(labelSelector={"matchLabels": {"dovetail.dev/job-number": ""}}),
    "another index": away_from(labelSelector=SELECTED, mismatchLabelKeys=["batch.kubernetes.io/job-completion-index"]),
    "those of the same run": away_from(labelSelector={}, matchLabelKeys=["batch.kubernetes.io/controller-uid"]),
    "a port of the node": listening(containerPort=80, hostPort=8080),
    "a sidecar's port of the node": listening("initContainers", containerPort=80, hostPort=8080),
    "the node's network": {"hostNetwork": True, **listening(containerPort=29500)},
}
TOGETHER: dict[str, dict[str, Any]] = {
    "nothing": {},
    "others by label": away_from(labelSelector={"matchLabels": {"app": "serve"}}),
    "nobody": away_from(),
    "zones": away_from(labelSelector=SELECTED, topologyKey="topology.kubernetes.io/zone"),
    "another namespace": away_from(labelSelector=SELECTED, namespaces=["other"]),
    "namespaces by label": away_from(labelSelector=SELECTED, namespaceSelector={"matchLabels": {"a": "b"}}),
    "another namespace, by name and label": away_from(
        labelSelector=SELECTED, namespaces=["other"], namespaceSelector={"matchLabels": {"a": "b"}}
    ),
    "one of two expressions": away_from(
        labelSelector={
            "matchExpressions": [
                {"key": "app", "operator": "Exists"},
                {"key": "app", "operator": "NotIn", "values": ["train"]},
            ]
        }
    ),
    "other runs": away_from(labelSelector=SELECTED, mismatchLabelKeys=["job-name"]),
    "the same index": away_from(labelSelector=SELECTED, matchLabelKeys=["batch.kubernetes.io/job-completion-index"]),
    "a port of the pod alone": listening(containerPort=80),
    "the node's network without a port": {"hostNetwork": True},
}


@pytest.mark.parametrize("says", APART)
def test_workers_that_could_not_share_a_node_take_one_each(says: str) -> None:
    assert is_apart(APART[says])
    assert not is_apart(APART[says], workers=1), "one worker is in nobody's way"


@pytest.mark.parametrize("says", TOGETHER)
def test_workers_that_may_share_a_node_do(says: str) -> None:
    assert not is_apart(TOGETHER[says])


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"affinity": [1]}, "spec.template.spec.affinity"),
        ({"affinity": {"nodeAffinity": ["x"]}}, "spec.template.spec.affinity.nodeAffinity"),
        ({"affinity": {"podAntiAffinity": "x"}}, "spec.template.spec.affinity.podAntiAffinity"),
        ({"nodeSelector": ["a"]}, "spec.template.spec.nodeSelector"),
        ({"nodeSelector": {"a": 1}}, "spec.template.spec.nodeSelector"),
        ({"tolerations": {"a": "b"}}, "spec.template.spec.tolerations"),
        ({"tolerations": ["x"]}, "spec.template.spec.tolerations"),
        ({"hostNetwork": "perhaps"}, "spec.template.spec.hostNetwork"),
        (away_from(labelSelector={"matchExpressions": [{"operator": "In"}]}), "missing required field `key`"),
    ],
)
def test_a_template_that_is_no_pods_is_refused_with_the_field(spec: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match="x") as error:
        is_apart(spec)
    assert told in str(error.value)
