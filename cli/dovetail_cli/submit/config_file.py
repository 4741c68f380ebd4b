"""gbatch's --config: a text file submitted with a job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import GPUJob, spec_of, template_of
from dovetail_cli.submit.attachments import VOLUMES
from dovetail_cli.ui.errors import MissingError, UsageError

# What the API server takes as the data of a ConfigMap.
MAX_BYTES: Final = 1024 * 1024
FOLDER: Final = "/etc/dovetail-config"
_KEY: Final = "config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A text file, and what it is called in the container: an `Attachment`."""

    name: str
    text: str
    purpose: ClassVar[str] = "config"

    @property
    def path(self) -> str:
        """Where it is in the container."""
        return f"{FOLDER}/{self.name}"

    @property
    def content(self) -> Mapping[str, Mapping[str, str]]:
        """The ConfigMap's data."""
        return {"data": {_KEY: self.text}}

    def mounted(self, job: GPUJob, *, config_map: str) -> GPUJob:
        """The job with the file in its first container."""
        spec = spec_of(job.spec.template)
        first, *others = spec["containers"]
        volume = {
            "name": VOLUMES[self.purpose],
            "configMap": {"name": config_map, "items": [{"key": _KEY, "path": self.name}]},
        }
        first = {
            **first,
            "env": [*(first.get("env") or ()), {"name": names.ENV_CONFIG, "value": self.path}],
            "volumeMounts": [
                *(first.get("volumeMounts") or ()),
                {"name": VOLUMES[self.purpose], "mountPath": FOLDER, "readOnly": True},
            ],
        }
        spec |= {"containers": [first, *others], "volumes": [*(spec.get("volumes") or ()), volume]}
        template = template_of(spec, metadata=job.spec.template.metadata)
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=template))


def read(text: str) -> ConfigFile:
    """Read the file that --config names.

    Raises `MissingError`, or `UsageError` if it is unusable.
    """
    path = Path(text)
    try:
        # A device or a pipe may have no end.
        if path.exists() and not path.is_file():
            raise UsageError(f"--config {text} is no file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise MissingError(f"--config {text}: there is no such file") from error
    except OSError as error:
        raise UsageError(f"--config {text}: {error.strerror}") from error
    return ConfigFile(name=_name(path, said=text), text=_text(data, said=text))


def _name(path: Path, *, said: str) -> str:
    # Kubernetes takes no path with "..", and a volume keeps names like ..data for itself.
    if path.name.startswith("..") or not path.name.isprintable():
        raise UsageError(f'--config {said!r}: a file that goes along has a plain name that does not begin with ".."')
    return path.name


def _text(data: bytes, *, said: str) -> str:
    if len(data) > MAX_BYTES:
        raise UsageError(f"--config {said} is too large: allowed are at most {MAX_BYTES} bytes (1 MiB)")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"--config {said} is no text in UTF-8: what is binary belongs into the image or on a volume")
    return text


def arguments(file: ConfigFile | None, *, words: Sequence[str]) -> list[str]:
    """The arguments that follow the command's own; none if it uses the variable itself."""
    if file is None or any(names.ENV_CONFIG in word for word in words):
        return []
    return ["--config", file.path]
