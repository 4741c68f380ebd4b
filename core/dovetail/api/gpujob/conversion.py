"""GPUJobs and pod templates out of plain values: dictionaries, lists, texts. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail import decoding
from dovetail.api.gpujob.components import PodTemplate, TemplateMetadata
from dovetail.api.gpujob.spec import GPUJob


def job_of(values: Mapping[str, Any]) -> GPUJob:
    """The GPUJob with these values, as in a manifest. Raises `UnreadableError`."""
    return decoding.decode(msgspec.json.encode(values), as_type=GPUJob)


def template_of(spec: Mapping[str, Any], *, metadata: TemplateMetadata | None = None) -> PodTemplate:
    """The pod template with that pod spec."""
    return PodTemplate(spec=msgspec.Raw(msgspec.json.encode(spec)), metadata=metadata or TemplateMetadata())


def spec_of(template: PodTemplate) -> dict[str, Any]:
    """The pod spec of a template, decoded: each call makes a new one. Raises `UnreadableError`."""
    return decoding.decode(template.spec, as_type=dict[str, Any])
