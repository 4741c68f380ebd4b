"""The answers about what was used over time, and when jobs started, moved, were preempted and ended. Types only."""

from typing import Literal

from dovetail.answers import Row

Subject = Literal["Cluster", "Model", "Node", "Device", "Namespace", "Project", "Job"]
Source = Literal["Dovetail", "Prometheus"]
MarkKind = Literal["Started", "Moved", "Preempted", "Ended"]
# One value for each step of time, null where none was taken; null instead of the list where the subject has none.
Values = list[float | None] | None


class SeriesRow(Row, frozen=True, kw_only=True):
    """The curves of one subject.

    name                  of the cluster "", of a device its index on the node
    namespace             of a job; empty for all others
    promised              GPUs that pods hold: a share counts as its part, a MIG instance by its slices
    used                  what of them was at work, in GPUs, by the measured utilization
    gpus                  the GPUs that report; null for a namespace, a project and a job
    utilization           the mean utilization of the GPUs, of what holds some of those that it holds (0-1)
    memory                their memory in use, as a part of all of it, or of what was promised (0-1)
    power_watts           their power draw
    temperature_celsius   the hottest one
    waiting, running      jobs that wait and that run, of the namespaces that you may list; null for devices
    starts                how many of them started within the step
    mean_wait_seconds     how long these had waited
    """

    namespace: str
    name: str
    gpus: Values
    promised: Values
    used: Values
    utilization: Values
    memory: Values
    power_watts: Values
    temperature_celsius: Values
    waiting: Values
    running: Values
    starts: Values
    mean_wait_seconds: Values


class MarkRow(Row, frozen=True, kw_only=True):
    """What happened to a job. `Moved` is a start on other nodes than those of its run before."""

    at: str
    kind: MarkKind
    namespace: str
    job: str
    number: int | None
    nodes: list[str]


class Series(Row, frozen=True, kw_only=True):
    """Curves with one value every `stepSeconds` from `since` on; `keptSince` is the earliest sample of this gateway.

    `marks` are those of the jobs of the subject, the latest last: of the cluster, models and namespaces moves and
    preemptions alone; `marksLeftOut` is how many earlier ones there were. `source` says where the curves of devices
    come from. `sourceProblem` says why they do not come from the Prometheus that the gateway names; empty if they do,
    or it names none.
    """

    since: str
    step_seconds: int
    kept_since: str | None
    items: list[SeriesRow]
    marks: list[MarkRow]
    marks_left_out: int
    source: Source
    source_problem: str


class NodeThen(Row, frozen=True, kw_only=True):
    """The devices of a node at one time: lists with a value for each of `indexes`, null where none was taken.

    `promised` are GPUs, `utilization` and `memory` parts (0-1).
    """

    name: str
    indexes: list[int]
    promised: list[float | None]
    utilization: list[float | None]
    memory: list[float | None]
    temperature_celsius: list[float | None]


class DevicesThen(Row, frozen=True, kw_only=True):
    """What all devices did in the step of `stepSeconds` from `since` on; `keptSince` is the earliest sample.

    A node without a sample of that step is left out.
    """

    since: str
    step_seconds: int
    kept_since: str | None
    nodes: list[NodeThen]
