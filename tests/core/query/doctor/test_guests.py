"""Which kinds of other projects the doctor says that the queue takes."""

from dovetail.query.doctor import guests
from tests.core.query.doctor.test_diagnosis import FORBIDDEN, picture


def test_kinds_without_their_crd_rest() -> None:
    (note,) = guests.judge(picture(neighbours=frozenset({"jobsets.jobset.x-k8s.io"})))
    assert note.level == "ok"
    assert note.message.startswith(
        "Pod, Job, JobSet, Deployment, StatefulSet with the label dovetail.dev/queue wait in the queue"
    )
    assert note.message.endswith(
        "; RayJob, RayCluster, MPIJob, TrainJob, LeaderWorkerSet, DisaggregatedSet would too, but their CRDs are not "
        "installed"
    )


def test_with_all_crds_none_rests() -> None:
    (note,) = guests.judge(picture(neighbours=frozenset(guests.CRDS)))
    assert "not installed" not in note.message


def test_crds_that_may_not_be_read_are_the_neighbours_finding() -> None:
    assert list(guests.judge(picture(neighbours=FORBIDDEN))) == []
