import pytest

from dovetail.api.resources import GPUJOBS, GPUNODES, JOBS, NODES, PODS


def test_paths_are_those_of_the_api_server() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path(namespace="a", name="p", subresource="binding") == "/api/v1/namespaces/a/pods/p/binding"
    assert JOBS.path(namespace="a") == "/apis/batch/v1/namespaces/a/jobs"
    assert NODES.path(name="n1") == "/api/v1/nodes/n1"
    assert GPUNODES.path(name="n1", subresource="status") == "/apis/dovetail.dev/v1beta1/gpunodes/n1/status"


def test_objects_carry_group_and_version() -> None:
    assert (PODS.api_version, GPUJOBS.api_version) == ("v1", "dovetail.dev/v1beta1")


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert PODS.path(namespace="a", name="../../secrets") == "/api/v1/namespaces/a/pods/..%2F..%2Fsecrets"


def test_a_named_pod_needs_its_namespace() -> None:
    with pytest.raises(ValueError, match="pods 'p' needs a namespace"):
        PODS.path(name="p")


def test_a_node_has_no_namespace() -> None:
    with pytest.raises(ValueError, match="nodes have no namespace"):
        NODES.path(namespace="a", name="n")
