"""Dovetail's own programs as forks of the supervisor, which has imported their modules once.

On one machine each of the nine programs would spend half a second of CPU on the same imports, and keep 20 to 40 MiB of
the same modules. Forks share these pages until they write to them. A fork is a process of its own: it ends, is killed
and starts again alone, as a program that is executed does.
"""

import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from dovetail_sandbox.state import Component

# By the names of their commands. Each has a function `main`.
_MAINS: Final[Mapping[str, str]] = {
    "dovetail-operator": "dovetail_operator.main",
    "dovetail-extender": "dovetail_extender.main",
    "dovetail-gateway": "dovetail_gateway.main",
    "dovetail-agent": "dovetail_agent.main",
    "dovetail-webhook": "dovetail_webhook.main",
    "dovetail-certificates": "dovetail_certificates.main",
}
# What programs load later than their main module, in every local queue. Whatever is missing here is loaded, and kept,
# by each of them.
_LATER: Final = (
    "structlog",
    "numpy.ma",
    "sqlite3",
    "dovetail_agent.reshape.feature",
    "dovetail_local_node.main",
    "dovetail_sandbox.installed.secret_volume",
    "dovetail_operator.history.service",
    "dovetail_gateway.samples.store",
    "sqlalchemy.dialects.sqlite",
)
_AS_MODULE: Final = ("-P", "-m")
_PR_SET_NAME: Final = 15
# NumPy's threads would keep memory, and no fork has them.
_THREADS: Final = "OPENBLAS_NUM_THREADS"


def load() -> None:
    """Import the modules of all programs, and keep the garbage collector off them: it would write to their pages."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    for name in (*_MAINS.values(), *_LATER):
        import_module(name)
    # Builds Pydantic's validators, which all programs use.
    import_module("dovetail.config.settings").Settings()
    if before is None:
        del os.environ[_THREADS]
    else:
        os.environ[_THREADS] = before
    gc.collect()
    gc.freeze()


def module_of(component: Component) -> str | None:
    """The module whose `main` is the component; None for a program that is not one of Dovetail's."""
    program, *words = component.argv
    if program == sys.executable and tuple(words[:2]) == _AS_MODULE:
        return words[2]
    path = Path(program)
    return _MAINS.get(path.name) if path.parent == Path(sys.executable).parent else None


def start(component: Component, *, module: str) -> int:
    """Fork, and run the `main` of the module there with the component's arguments. Return the process's number."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        _become(component, module=module)
        code = _exit_code(import_module(module).main)
    except BaseException:  # noqa: BLE001 - nothing of the supervisor may run in this process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become(component: Component, *, module: str) -> None:
    """What an executed program would find: a session, its output, no blocked signal, its arguments and variables."""
    os.setsid()
    log = os.open(component.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.environ.update(component.env)
    # As -m does it, or the command's script: the words after the program.
    words = component.argv[4:] if component.argv[0] == sys.executable else component.argv[1:]
    sys.argv = [component.argv[0], *words]
    ctypes.CDLL(None).prctl(_PR_SET_NAME, module.partition(".")[0].encode()[:15], 0, 0, 0)


def _exit_code(main: Callable[[], object]) -> int:
    try:
        ended = main()
    except SystemExit as error:
        ended = error.code
    if isinstance(ended, str):
        sys.stderr.write(f"{ended}\n")
        return 1
    return ended if isinstance(ended, int) else 0
