"""Checks of pods that wait for other systems' GPUs while Dovetail manages nodes, with the cure. Pure.

A module of its own: each subject of the doctor has one, with its `judge`.
"""

from collections.abc import Iterator
from typing import Final

from dovetail import names
from dovetail.answers.doctor import CheckResult
from dovetail.cluster.picture import Picture, Unseen
from dovetail.config.settings import Settings
from dovetail.pods.translation.resources import is_foreign
from dovetail.query.doctor.findings import unknown

CHECK: Final = "requests"


def judge(picture: Picture, *, settings: Settings) -> Iterator[CheckResult]:
    """Report namespaces whose pods wait for another system's resource, and whose requests are not translated."""
    waited, nodes, namespaces = picture.resources_waited_for, picture.nodes, picture.namespaces
    if isinstance(waited, Unseen):
        yield unknown(CHECK, unseen=waited)
        return
    if isinstance(nodes, Unseen) or isinstance(namespaces, Unseen):
        # Other checks say so.
        return
    if not any(node.metadata.labels.get(names.LABEL_MANAGED) == "true" for node in nodes):
        return
    translated = {each.metadata.name for each in namespaces if each.metadata.labels.get(names.TRANSLATE) == "true"}
    for name in sorted(waited.keys() - translated):
        foreign = (each for each in waited[name] if is_foreign(each, vendors=settings.vendors))
        for resource in sorted(foreign):
            yield CheckResult(
                level="warning",
                check=CHECK,
                message=f"{name}: pods wait for {resource}, which only nodes of another system have, not those that "
                f"Dovetail manages",
                fix=f"kubectl label namespace {name} {names.TRANSLATE}=true, and create the pods again",
            )
