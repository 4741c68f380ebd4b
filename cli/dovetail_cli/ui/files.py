"""Files that are given on the command line, as text."""

import gzip
import zlib
from pathlib import Path
from typing import Final

from dovetail_cli.ui.errors import CommandError, MissingError, UsageError

_GZIP: Final = b"\x1f\x8b"


def read_text(name: str | Path) -> str:
    """The text of a file, unpacked where gzip packed it or its name says so.

    Raises `MissingError` for one that is not there, `UsageError` for what is no text.
    """
    path = Path(name)
    try:
        content = path.read_bytes()
        packed = path.suffix == ".gz" or content.startswith(_GZIP)
        return (gzip.decompress(content) if packed else content).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise MissingError(f"{name}: there is no such file") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{name}: expected a file packed by gzip ({error})") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: expected text in UTF-8 ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error
