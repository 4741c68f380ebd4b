"""The image of a container that names none: any will do where no node runs images. Pure."""

from collections.abc import Iterable
from typing import Any

from dovetail import names
from dovetail.answers.node_rows import runs
from dovetail.api.builtin import Node
from dovetail.api.reasons import problems as says
from dovetail_gateway.routing.problems import RequestFailedError


def with_images(spec: dict[str, Any], *, nodes: Iterable[Node]) -> dict[str, Any]:
    """The spec of a GPUJob, complete if all nodes are simulated or run processes.

    Raises `RequestFailedError` for a container without an image elsewhere. What has another shape is left to the API
    server, which says what is wrong with it.
    """
    containers = _containers(spec)
    lacking = [at for at, container in enumerate(containers) if not container.get("image")]
    if not lacking:
        return spec
    if not _run_no_images(nodes):
        field = f"spec.template.spec.containers[{lacking[0]}].image"
        raise RequestFailedError(422, reason="Invalid", sentence=says.IMAGE_MISSING(field=field))
    complete = [{**container, "image": container.get("image") or names.UNUSED_IMAGE} for container in containers]
    template = spec["template"]
    return {**spec, "template": {**template, "spec": {**template["spec"], "containers": complete}}}


def _run_no_images(nodes: Iterable[Node]) -> bool:
    found = list(nodes)
    return bool(found) and all(runs(node) != "Containers" for node in found)


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The containers; none if anything on the way to them has another shape."""
    place: Any = spec
    for key in ("template", "spec", "containers"):
        place = place.get(key) if isinstance(place, dict) else None
    if not isinstance(place, list) or not all(isinstance(each, dict) for each in place):
        return []
    return place
