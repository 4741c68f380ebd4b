"""The names that people give jobs, and the names of their objects. Pure.

Kubernetes allows lower-case letters, digits and hyphens. A job that people call otherwise, such as `lr0.001_bs32`,
keeps that name in an annotation, and its object gets a similar one with a hash, so that no two names share an object.
"""

import hashlib
import re
from typing import Final

from dovetail import names
from dovetail.api.meta import ObjectMeta

# The Job and the pods' labels contain the object's name, and so do the pods' names, with an index and a suffix.
MAX_OBJECT_LENGTH: Final = 52
MAX_LENGTH: Final = 100
_OBJECT: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_OTHERS: Final = re.compile(r"[^a-z0-9]+")
_HASH_LENGTH: Final = 6


def problem_of(text: str) -> str:
    """Why a text cannot be the name of a job; empty if it can."""
    if not 1 <= len(text) <= MAX_LENGTH:
        return f"it has {len(text)} characters, allowed are 1 to {MAX_LENGTH}"
    if not text.isprintable() or text != text.strip():
        return "it has a control character, or a blank at an end"
    if "," in text or text.startswith("@"):
        return "commas separate jobs, and @ is your last job"
    return ""


def is_object_name(text: str) -> bool:
    """Whether a job's object can have this name."""
    return len(text) <= MAX_OBJECT_LENGTH and _OBJECT.fullmatch(text) is not None


def object_name(text: str) -> str:
    """The name of the object of a job that people call `text`: `lr0-001-bs32-1f0c6a` for `lr0.001_bs32`."""
    if is_object_name(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    similar = _OTHERS.sub("-", text.lower()).strip("-")[: MAX_OBJECT_LENGTH - _HASH_LENGTH - 1].strip("-")
    return f"{similar}-{digest}" if similar else f"job-{digest}"


def display_name(meta: ObjectMeta) -> str:
    """What people call the job with this metadata."""
    return meta.annotations.get(names.DISPLAY_NAME) or meta.name
