"""A function and the arguments of its calls as bytes: one line of JSON, and what it gives the lengths of."""

import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, Final

import msgspec

from dovetail.sdk.errors import InvalidError

# The arguments of one call, and its named ones.
Arguments = tuple[Sequence[Any], Mapping[str, Any]]
_INSTALLED: Final = ("site-packages", "dist-packages")
# In a container whose working directory is `/`, these are below it too.
_OF_PYTHON: Final = Path(os.__file__).parent
# cloudpickle's list of such modules is one for the process.
_registering: Final = Lock()


def pack(function: Callable[..., Any], *, calls: Sequence[Arguments], along: bool) -> bytes:
    """The function with its calls. Raises `InvalidError` for what cannot be pickled.

    What is defined in a script or notebook goes along. With `along`, so do the modules below the current directory; a
    job that runs there imports them.
    """
    import cloudpickle.cloudpickle

    with _by_value(_own_modules() if along else ()):
        parts = [_pickled(function, named=f"the function {_name(function)}")]
        parts += [_pickled((tuple(args), dict(named)), named="an argument") for args, named in calls]
    sent: bytes | None = getattr(cloudpickle, "SENT", None)
    source = sent or zlib.compress(Path(cloudpickle.cloudpickle.__file__).read_bytes(), 9)
    header = {
        "python": list(sys.version_info[:2]),
        "path": [] if along else [str(Path(each).absolute()) for each in sys.path],
        "cloudpickle": len(source),
        "function": len(parts[0]),
        "calls": [len(part) for part in parts[1:]],
    }
    return b"".join([msgspec.json.encode(header), b"\n", source, *parts])


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


def _pickled(value: Any, *, named: str) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        # Whatever a __reduce__ raises.
        message = f"{named} cannot be pickled: {type(error).__name__}: {error}"
        raise InvalidError(message, status=422, reason="Invalid") from error


def _own_modules() -> Iterator[ModuleType]:
    """The loaded modules whose files are below the current directory, and are no installed packages."""
    here = Path.cwd()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or name == "__main__" or name.partition(".")[0] == "dovetail":
            continue
        if getattr(module, "__name__", None) != name:
            # Another name of a module, as `os.path` is one of `posixpath`. cloudpickle knows each by its own name.
            continue
        path = Path(file)
        is_installed = path.is_relative_to(_OF_PYTHON) or any(part in _INSTALLED for part in path.parts)
        if path.is_relative_to(here) and not is_installed:
            yield module


@contextmanager
def _by_value(modules: Iterator[ModuleType] | tuple[ModuleType, ...]) -> Iterator[None]:
    import cloudpickle

    with _registering:
        known = cloudpickle.list_registry_pickle_by_value()
        ours = [module for module in modules if module.__name__ not in known]
        for module in ours:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in ours:
                cloudpickle.unregister_pickle_by_value(module)
