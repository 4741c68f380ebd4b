"""`dovetail-mps-shm`: mounts a bounded `/dev/shm` for MPS before its supervisor starts.

Every client of the node writes there. MPS's folder is usually on the node's `/run`. A client could fill that up, and
the node's own programs need the room. The process ends after the mount.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dovetail_agent.mps.volume_driver.mounts import MountError, keep_tmpfs


def main(arguments: Sequence[str] | None = None) -> None:
    """Mount it; exits 1 with one sentence on failure."""
    options = argparse.ArgumentParser(prog="dovetail-mps-shm", description="Bounds the shared memory of MPS's clients.")
    options.add_argument("--directory", type=Path, metavar="DIR", required=True, help="MPS's folder")
    options.add_argument("--size", required=True, help="as tmpfs has it: 8g, or 50%% of the node's memory")
    args = options.parse_args(arguments)
    try:
        keep_tmpfs(args.directory / "shm", size=args.size)
    except MountError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
