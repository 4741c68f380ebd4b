"""The same cluster with random words instead of the names of hidden namespaces, and its sentences without them. Pure.

A decision depends on no name's text, only on which names are equal; so the queue decides on the renamed cluster as on
the real one. Its sentences can then be shown: what names a hidden object is a random word, and `readable` replaces the
phrases around these words.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace as with_fields

from dovetail import names
from dovetail.answers.readers import Reader
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode, Stranger
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import ObjectMeta, OwnerReference
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.decoding import UnreadableError, decode
from dovetail.query.checkpoints import checkpoint
from dovetail_gateway.access.visibility import Visibility

S = TypeVar("S", Pod, Job, GPUJob)
# A word that is a valid name everywhere, and that no user has chosen.
_PREFIX: Final = "zz-hidden-"
_WORD: Final = rf"{_PREFIX}[0-9a-f]{{12}}"
ANOTHER: Final = "another tenant"
_PHRASES: Final = (
    re.compile(rf"\bjob (?:[0-9]+|{_WORD}) of namespace {_WORD}"),
    re.compile(rf"\b(?:pod|job|namespace|user|GPUQuota) {_WORD}(?:/{_WORD})?"),
    re.compile(rf"{_WORD}(?:/{_WORD})?"),
)
# Labels and annotations whose value is the name of a job or project, and those that contain a name.
_NAMES: Final = frozenset({names.LABEL_JOB, names.LABEL_ARRAY})
_NAMING: Final = _NAMES | {names.LABEL_PROJECT, names.USER, names.ALLOCATION}


class OtherNames:
    """Random words for the names that are hidden from one caller; `secret` makes them unpredictable."""

    def __init__(
        self,
        *,
        sees: Visibility,
        jobs: Sequence[GPUJob],
        secret: bytes,
        pods: Sequence[Pod] = (),
        users: Sequence[str] = (),
    ) -> None:
        """`jobs` and `pods` are all of the cluster.

        Users with jobs that the caller sees are not hidden, nor are `users`, nor projects of what the caller sees.
        """
        self._sees = sees
        self._secret = secret
        seen = [job.metadata for job in jobs if sees.sees(job.metadata.namespace)]
        self._users = {*users, *(meta.annotations.get(names.USER, "") for meta in seen)}
        seen += [pod.metadata for pod in pods if sees.sees(pod.metadata.namespace)]
        self._projects = {meta.labels[names.LABEL_PROJECT] for meta in seen if names.LABEL_PROJECT in meta.labels}

    def namespace(self, name: str) -> str:
        """The namespace, or its word."""
        return name if self._sees.sees(name) else self._word(name)

    def user(self, name: str) -> str:
        """The user, or a word for one without jobs that the caller sees."""
        return name if name in self._users else self._word(name)

    def project(self, name: str) -> str:
        """The project, or a word for one of hidden jobs and pods alone."""
        return name if name in self._projects else self._word(name)

    def cluster(self, objects: ClusterObjects) -> ClusterObjects:
        """The cluster with the hidden names replaced."""
        if self._sees.everything:
            return objects
        return replace(
            objects,
            pods=self._renamed(objects.pods, as_hidden=self._pod),
            jobs=self._renamed(objects.jobs, as_hidden=self._job),
            batch_jobs=None if objects.batch_jobs is None else self._renamed(objects.batch_jobs, as_hidden=self._batch),
            quotas=None if objects.quotas is None else list(map(self.quota, objects.quotas)),
            settings=self._settings(objects.settings),
        )

    def quota(self, quota: GPUQuota) -> GPUQuota:
        """The quota with the hidden names replaced."""
        if self._sees.everything:
            return quota
        spec = quota.spec
        hidden = self.hides(quota)
        return with_fields(
            quota,
            metadata=with_fields(quota.metadata, name=self._word(quota.metadata.name)) if hidden else quota.metadata,
            spec=with_fields(
                spec,
                namespaces=list(map(self.namespace, spec.namespaces)),
                users=list(map(self.user, spec.users)),
                # The queue compares them with the labels, which are renamed in the same way.
                projects=list(map(self.project, spec.projects)),
            ),
        )

    def _word(self, name: str) -> str:
        return _PREFIX + hashlib.blake2s(name.encode(), key=self._secret, digest_size=6).hexdigest()

    def _renamed(self, found: Sequence[S], *, as_hidden: Callable[[S], S]) -> list[S]:
        renamed = []
        for each in found:
            checkpoint()
            renamed.append(each if self._sees.sees(each.metadata.namespace) else as_hidden(each))
        return renamed

    def _pod(self, pod: Pod) -> Pod:
        return with_fields(pod, metadata=self._meta(pod.metadata))

    def _batch(self, job: Job) -> Job:
        return with_fields(job, metadata=self._meta(job.metadata))

    def _job(self, job: GPUJob) -> GPUJob:
        dependencies = [with_fields(each, name=self._word(each.name)) for each in job.spec.dependencies]
        group = None if job.spec.group is None else self._word(job.spec.group)
        return with_fields(
            job,
            metadata=self._meta(job.metadata),
            spec=with_fields(job.spec, dependencies=dependencies, group=group),
        )

    def _meta(self, meta: ObjectMeta) -> ObjectMeta:
        return with_fields(
            meta,
            name=self._word(meta.name),
            generate_name=self._word(meta.generate_name) if meta.generate_name else "",
            namespace=self._word(meta.namespace),
            labels=self._naming(meta.labels),
            annotations=self._naming(meta.annotations),
            owner_references=tuple(self._owner(each) for each in meta.owner_references),
        )

    def _naming(self, found: dict[str, str]) -> dict[str, str]:
        if _NAMING.isdisjoint(found):
            return found
        return {key: self._value(key, value=value) for key, value in found.items()}

    def _value(self, key: str, *, value: str) -> str:
        if key == names.LABEL_PROJECT:
            return self.project(value)
        if key in _NAMES:
            return self._word(value)
        if key == names.USER:
            return self.user(value)
        return self._allocation(value) if key == names.ALLOCATION else value

    def _allocation(self, text: str) -> str:
        """The allocation with another name of its job; one that cannot be read is left, since no sentence quotes it."""
        try:
            found = decode(text, as_type=dict[str, Any])
        except UnreadableError:
            return text
        job = found.get("job")
        return msgspec.json.encode({**found, "job": self._word(job)}).decode() if isinstance(job, str) and job else text

    def _owner(self, owner: OwnerReference) -> OwnerReference:
        return with_fields(owner, name=self._word(owner.name))

    def hides(self, quota: GPUQuota) -> bool:
        """Whether a quota applies to hidden namespaces, users or projects alone."""
        spec = quota.spec
        of_others = bool(spec.namespaces) and not any(map(self._sees.sees, spec.namespaces))
        of_others |= bool(spec.projects) and self._projects.isdisjoint(spec.projects)
        return of_others or (bool(spec.users) and self._users.isdisjoint(spec.users))

    def _settings(self, settings: Settings) -> Settings:
        def renamed(found: Mapping[str, Any]) -> dict[str, Any]:
            return {self.namespace(name): value for name, value in found.items()}

        by_namespace = [key for key in type(settings).model_fields if key.startswith("namespace_")]
        update: dict[str, Any] = {key: renamed(getattr(settings, key)) for key in by_namespace}
        update["moves"] = settings.moves.model_copy(update={"namespaces": renamed(settings.moves.namespaces)})
        return settings.model_copy(update=update)


def without_commands(report: GPUNode) -> GPUNode:
    """A node's report without what names the processes that use devices without an allocation."""
    if not any(device.strangers for device in report.status.devices):
        return report
    devices = [
        with_fields(device, strangers=[Stranger(pid=0) for _ in device.strangers]) for device in report.status.devices
    ]
    return with_fields(report, status=with_fields(report.status, devices=devices))


def readable(sentence: str) -> str:
    """A sentence about the renamed cluster with `another tenant` where it names something hidden."""
    for phrase in _PHRASES:
        sentence = phrase.sub(ANOTHER, sentence)
    return sentence


def reader_of(sees: Visibility) -> Reader:
    """Who reads answers about the renamed cluster of one caller."""
    return Reader(sees=sees.sees, readable=readable, everything=sees.everything)
