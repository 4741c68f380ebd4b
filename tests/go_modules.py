"""Files of Go modules that tests read: pinned by a go.sum, downloaded by Go, never built."""

import json
import subprocess
import sys
from pathlib import Path

from dovetail_sandbox.programs import go_build, locate, toolchain
from dovetail_sandbox.progress import Lines


def contents(module: str, *, pinned_in: Path) -> Path:
    """The folder with the files of `path@version`, verified against the go.sum of another module's folder."""
    go = toolchain.obtain(cache=locate.cache_folder(), report=Lines(sys.stderr))
    command = [go, "mod", "download", "-json", module]
    done = subprocess.run(
        command, cwd=pinned_in, env=go_build.environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(json.loads(done.stdout)["Dir"])
