import msgspec
import pytest

from dovetail.api.builtin import Event, Job, Node, Pod, PodStatus, is_terminated


def test_a_pod_keeps_what_is_read_and_drops_the_rest() -> None:
    pod = msgspec.json.decode(
        b"""{"kind": "Pod", "metadata": {"name": "p", "namespace": "a", "uid": "u", "resourceVersion": "7",
        "managedFields": [{"manager": "x"}], "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j",
        "uid": "o", "controller": true}]}, "spec": {"nodeName": "n1", "schedulerName": "dovetail", "containers": [{
        "name": "c", "image": "i", "resources": {"limits": {"dovetail.dev/gpu-milli": "500"}}, "env": [{"name": "V",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['k']"}}}]}]}, "status": {"phase": "Failed",
        "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}}""",
        type=Pod,
    )
    assert pod.spec.containers[0].resources.limits == {"dovetail.dev/gpu-milli": "500"}
    assert pod.metadata.owner_references[0].controller
    assert pod.spec.containers[0].env[0].value_from.field_ref.field_path == "metadata.annotations['k']"
    terminated = pod.status.container_statuses[0].state.terminated
    assert (terminated.exit_code, terminated.reason) == (137, "OOMKilled")


def test_a_template_may_hold_plain_numbers_as_amounts() -> None:
    pod = msgspec.convert({"spec": {"containers": [{"resources": {"requests": {"cpu": 2, "memory": 0.5}}}]}}, Pod)
    assert pod.spec.containers[0].resources.requests == {"cpu": 2, "memory": 0.5}


def test_events_of_either_kind_of_writer_are_read() -> None:
    event = msgspec.json.decode(
        b'{"eventTime": null, "firstTimestamp": null, "lastTimestamp": "2026-01-01T00:00:00Z", "message": "m"}',
        type=Event,
    )
    assert (event.event_time, event.last_timestamp) == (None, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize("kind", [Pod, Node, Job, Event])
def test_an_object_with_nothing_in_it_is_read(kind: type) -> None:
    assert msgspec.json.decode(b"{}", type=kind) == kind()


@pytest.mark.parametrize("kind", [Pod, Node, Job])
def test_what_an_object_has_none_of_costs_the_garbage_collector_nothing(kind: type) -> None:
    found = msgspec.json.decode(b'{"metadata": {}, "spec": {"containers": [{}]}, "status": {}}', type=kind)
    parts = [found.metadata, found.spec, found.status, *getattr(found.spec, "containers", ())]
    fields = [value for part in parts for value in msgspec.structs.astuple(part)]
    assert not [value for value in fields if isinstance(value, list)]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_succeeded_or_failed_is_terminated(phase: str) -> None:
    assert is_terminated(Pod(status=PodStatus(phase=phase)))


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "Unknown"])
def test_a_pod_of_any_other_phase_is_not_terminated(phase: str) -> None:
    assert not is_terminated(Pod(status=PodStatus(phase=phase)))
