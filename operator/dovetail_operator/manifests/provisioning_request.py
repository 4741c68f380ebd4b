"""The ProvisioningRequest of the cluster autoscaler: the nodes of all workers that need one, at once. Pure.

It names a PodTemplate, which belongs to it and asks for what a placeholder pod asks for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail import names
from dovetail.api.autoscaler import ProvisioningRequest
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import PODTEMPLATES, PROVISIONINGREQUESTS
from dovetail.engine.model.claims import Ask
from dovetail.jobs.batch_job import owner_reference
from dovetail.queue.growing.pools import GrowingPool
from dovetail.queue.growing.requests import provisioning_request_name
from dovetail_operator.manifests.placeholder import pod_template

Manifest = dict[str, Any]


def provisioning_request(job: GPUJob, *, pool: GrowingPool) -> Manifest | None:
    """The ProvisioningRequest for the job's request (`status.provisioning`); None once it was given up."""
    request = job.status.provisioning
    if request is None or request.retry_time is not None:
        return None
    name = provisioning_request_name(request, of=job.metadata)
    return {
        "apiVersion": PROVISIONINGREQUESTS.api_version,
        "kind": PROVISIONINGREQUESTS.kind,
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": {names.LABEL_PLACEHOLDER: job.metadata.uid},
            "ownerReferences": [msgspec.to_builtins(owner_reference(job))],
        },
        "spec": {
            "provisioningClassName": pool.provisioning_class,
            "podSets": [{"podTemplateRef": {"name": name}, "count": request.workers}],
        },
    }


def template_of_request(
    made: ProvisioningRequest,
    *,
    job: GPUJob,
    ask: Ask,
    pool: GrowingPool,
    spec: Mapping[str, Any],
    besides: Sequence[str],
) -> Manifest:
    """The PodTemplate that a ProvisioningRequest names. The garbage collector deletes it with the request."""
    owner = {
        "apiVersion": PROVISIONINGREQUESTS.api_version,
        "kind": PROVISIONINGREQUESTS.kind,
        "name": made.metadata.name,
        "uid": made.metadata.uid,
    }
    return {
        "apiVersion": PODTEMPLATES.api_version,
        "kind": PODTEMPLATES.kind,
        "metadata": {
            "name": made.metadata.name,
            "namespace": made.metadata.namespace,
            "labels": {names.LABEL_PLACEHOLDER: job.metadata.uid},
            "ownerReferences": [owner],
        },
        "template": pod_template(job, ask=ask, pool=pool, spec=spec, besides=besides),
    }
