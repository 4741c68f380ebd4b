"""Call a function in a job: `python -c SOURCE FOLDER`, or `python -c SOURCE - WORD PART…`.

With a folder, the function is in `FOLDER/call` and the outcome goes to `FOLDER/outcome-TASK-WORKER`. With `-`, the
parts are the function in base64, and the outcome is printed in lines that begin with `MARK` and the word. The word is
random: what the function prints of data of others is no outcome, whatever the data are.

This text runs in any image with Python 3.6: it imports nothing but the standard library, so that it can say what is
wrong with the image.
"""

import base64
import json
import os
import sys
import traceback
from contextlib import suppress
from typing import Any, BinaryIO

MARK = "dovetail-outcome"
# kubelet splits lines of more than 16 KiB.
LINE_BYTES = 12000
MOST_PRINTED_BYTES = 1024 * 1024
# Of an error's text and of its traceback: kubelet keeps the last 10 MiB of a log.
MOST_PRINTED_CHARACTERS = 64 * 1024


def main(words: "list[str]") -> int:
    """Call the function; the exit code is 1 if it has no value."""
    folder, word = ("", words[1]) if words[0] == "-" else (words[0], "")
    process, place = os.getpid(), _place()
    # A function may close or replace its standard output, or this copy of it.
    printing = (os.dup(1), os.fstat(1)) if word else None
    outcome, data = _called(folder, parts=words[2:])
    if os.getpid() == process:
        _flush()
        if printing is None:
            _keep(outcome, data=data, folder=folder, place=place)
        else:
            outcome = _printed(outcome, data=data, word=word, printing=_open(printing))
    # What a process that the function has forked comes to is no outcome of the call.
    return 0 if outcome["kind"] == "value" else 1


def _place() -> "tuple[str, str]":
    """The task and the worker that this is. The function may set these variables for frameworks."""
    return os.environ.get("DOVETAIL_ARRAY_TASK_ID") or "0", os.environ.get("RANK") or "0"


def _called(folder: str, *, parts: "list[str]") -> "tuple[dict[str, str], bytes]":
    """The outcome and its pickle."""
    if folder:
        try:
            file = open(os.path.join(folder, "call"), "rb")  # noqa: PTH118, PTH123, SIM115
        except FileNotFoundError:
            # As after `gjob redo`.
            sys.exit("dovetail: the call was deleted when its result was read: submit it again, with key= to keep it")
        with file:
            return _outcome(file)
    import io

    return _outcome(io.BytesIO(base64.b64decode("".join(parts))))


def _outcome(file: "BinaryIO") -> "tuple[dict[str, str], bytes]":
    header = json.loads(file.readline().decode())  # noqa: TID251
    here, there = list(sys.version_info[:2]), header["python"]
    if here != there:
        said = "the function was sent from Python {}.{}, and the job runs Python {}.{}: use the same one"
        return {"kind": "refused", "text": said.format(there[0], there[1], here[0], here[1])}, b""
    sys.path[:0] = [each for each in header["path"] if each not in sys.path]
    try:
        cloudpickle = _cloudpickle(file.read(header["cloudpickle"]))
        import pickle

        function = pickle.loads(file.read(header["function"]))  # noqa: S301 - its user sent it
        task = int(os.environ.get("DOVETAIL_ARRAY_TASK_ID") or 0) if len(header["calls"]) > 1 else 0
        file.seek(sum(header["calls"][:task]), 1)
        arguments, named = pickle.loads(file.read(header["calls"][task]))  # noqa: S301
    except BaseException as error:  # noqa: BLE001 - whatever a module does when it is imported
        return _failed(error, data=b"", before="the function cannot be read in the job: ")
    # A function may close what it has not opened, as a daemon does.
    file.close()
    try:
        value = _awaited(function(*arguments, **named))
    except BaseException as error:  # noqa: BLE001 - the job's end is this outcome
        if isinstance(error, SystemExit) and not error.code:
            value = None
        else:
            return _failed(error, data=_pickled(error, cloudpickle=cloudpickle), before="")
    try:
        return {"kind": "value", "text": ""}, cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - whatever a __reduce__ raises
        said = "its result, a {}, cannot be pickled: {}".format(type(value).__name__, _text_of(error))  # noqa: UP032
        return {"kind": "refused", "text": said}, b""


def _awaited(value: "Any") -> "Any":
    """The value; that of a coroutine once it has run."""
    import inspect

    if not inspect.iscoroutine(value):
        return value
    import asyncio

    return asyncio.run(value)


def _pickled(error: BaseException, *, cloudpickle: "Any") -> bytes:
    """The error's pickle; empty for one that has none, whose text alone comes back.

    An exception with an `__init__` of its own takes other arguments than those that its pickle calls it with: that
    fails, or says something else. It is made without a call then, with what it has.
    """
    import pickle

    with suppress(Exception):  # whatever a __reduce__, an __init__ or an argument's comparison raises
        data = cloudpickle.dumps(error)
        if pickle.loads(data).args == error.args:  # noqa: S301 - it was made here
            return bytes(data)
    try:
        return bytes(cloudpickle.dumps(_Made(error)))
    except Exception:  # noqa: BLE001 - whatever an attribute's __reduce__ raises
        return b""


class _Made:
    """An error whose pickle makes it without a call of its class."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> "tuple[Any, ...]":
        from functools import partial

        return partial(_remade, arguments=self.error.args, attributes=self.error.__dict__), (type(self.error),)


def _remade(kind: "Any", *, arguments: "tuple[Any, ...]", attributes: "dict[str, Any]") -> BaseException:
    error: BaseException = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


def _failed(error: BaseException, *, data: bytes, before: str) -> "tuple[dict[str, str], bytes]":
    trace = _readable("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    with suppress(Exception):  # the function may have closed or replaced it
        sys.stderr.write(trace)
    kind = "error" if not before else "refused"
    return {"kind": kind, "text": before + _text_of(error), "traceback": trace}, data


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as problem:  # noqa: BLE001 - whatever a __str__ raises
        text = "(its text cannot be read: {})".format(type(problem).__name__)  # noqa: UP032 - Python 3.6 reads this
    return _readable("{}: {}".format(type(error).__name__, text))  # noqa: UP032


def _readable(text: str) -> str:
    """The text without half of a pair of code units, as a name of a file has that is no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _cloudpickle(source: bytes) -> "Any":
    """The package as it was sent: an image need not have it, and another version may not read these pickles."""
    import types
    import zlib

    package, inner = types.ModuleType("cloudpickle"), types.ModuleType("cloudpickle.cloudpickle")
    package.__path__ = []
    sys.modules.update({"cloudpickle": package, "cloudpickle.cloudpickle": inner})
    exec(compile(zlib.decompress(source), "cloudpickle.py", "exec"), inner.__dict__)  # noqa: S102 - its user sent it
    package.__dict__.update({name: each for name, each in inner.__dict__.items() if not name.startswith("__")})
    # A function that submits others sends it on: there is no file to read it from.
    package.__dict__.update({"cloudpickle": inner, "SENT": source})
    return package


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        with suppress(Exception):  # the function may have closed or replaced it
            stream.flush()  # type: ignore[union-attr] # None has none


def _keep(outcome: "dict[str, str]", *, data: bytes, folder: str, place: "tuple[str, str]") -> None:
    path = os.path.join(folder, "outcome-{}-{}".format(*place))  # noqa: PTH118
    handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(json.dumps(outcome).encode() + b"\n")
        file.write(data)
    os.replace(path + ".new", path)  # noqa: PTH105


def _open(printing: "tuple[int, os.stat_result]") -> int:
    """The copy of standard output; standard output itself if the function has closed the copy."""
    copy, log = printing
    with suppress(OSError):
        if os.path.samestat(os.fstat(copy), log):
            return copy
    return 1


def _cut(text: str) -> str:
    half = MOST_PRINTED_CHARACTERS // 2
    return text if len(text) <= 2 * half else text[:half] + " [...] " + text[-half:]


def _printed(outcome: "dict[str, str]", *, data: bytes, word: str, printing: int) -> "dict[str, str]":
    """The outcome, or why it cannot be printed, which is in the log now."""
    if len(data) > MOST_PRINTED_BYTES:
        said = "its result has {} bytes, and at most {} come back by the log: write it to a volume and return the path"
        if outcome["kind"] == "value":
            outcome = {"kind": "refused", "text": said.format(len(data), MOST_PRINTED_BYTES)}
        data = b""
    outcome = {name: _cut(each) for name, each in outcome.items()}
    text = base64.b64encode(json.dumps(outcome).encode() + b"\n" + data).decode()
    parts = [text[at : at + LINE_BYTES] for at in range(0, len(text), LINE_BYTES)]
    with os.fdopen(printing, "w") as log:
        # The function may have begun a line.
        log.write("\n")
        for number, part in enumerate(parts, 1):
            log.write("{} {} {}/{} {}\n".format(MARK, word, number, len(parts), part))  # noqa: UP032
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
