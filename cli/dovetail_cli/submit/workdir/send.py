"""How a directory goes along with a job: in a ConfigMap, or onto the job's volume."""

import asyncio
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dovetail.api.gpujob import GPUJob
from dovetail_cli.cluster import kubectl
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import create
from dovetail_cli.submit.attachments import Sent
from dovetail_cli.submit.workdir import archive, directory, listing, place, unpack
from dovetail_cli.submit.workdir.directory import Directory
from dovetail_cli.submit.workdir.files_pod import CONTAINER, files_pod
from dovetail_cli.ui.errors import CommandError

# More belongs on the volume by other ways.
MAX_VOLUME_BYTES: Final = 1024**3
_NAMED: Final = 3
_STEP: Final = 1024
# From standard input: the script reads its archive several times.
_RECEIVE: Final = """set -eu
script=$1 above=$2
shift 2
mkdir -p "$above" && received=`mktemp "$above/.archive-XXXXXX"`
trap 'rm -f "$received"' EXIT
cat >"$received"
sh -c "$script" dovetail-unpack "$received" "$@"
"""


def typed_in() -> Path | None:
    """The directory that goes along; None for the home directory and /, which hold too much."""
    here = Path.cwd()
    if here in {Path("/"), Path.home().resolve()}:
        print(f"dovetail: {here} does not go along: type gbatch in the program's own directory", file=sys.stderr)
        return None
    return here


async def send(
    cluster: Cluster,
    *,
    job: GPUJob,
    root: Path,
    workdir: str | None,
    dry_run: bool,
    kubeconfig: str | None,
    context: str | None,
) -> Sent:
    """The job in a copy of the directory.

    A large one is copied onto the volume of `workdir` now, unless `dry_run`.

    Raises `CommandError` for a directory that can neither go along nor onto a volume.
    """
    found = listing.of(root)
    _warn(found.left_out)
    there = place.choose(job, workdir=workdir, token=secrets.token_hex(3))
    try:
        packed = archive.pack(found)
    except archive.TooLargeError as error:
        if there.mount is None or found.size > MAX_VOLUME_BYTES:
            raise CommandError(refusal(found)) from error
        if not dry_run:
            # What the API server refuses must leave no files behind.
            await create.create(cluster, job=job, dry_run=True)
            program = kubectl.find(kubeconfig=kubeconfig, context=context, needed_for="copying files onto a volume")
            await _copy(cluster, job=job, found=found, there=there, program=program)
        return Sent(job=directory.running_in(job, path=there.path))
    if there.mount is None:
        _warn_of_loss(there)
    return Sent(job=job, attached=(Directory(archive=packed, place=there),))


def refusal(found: listing.Listing) -> str:
    """What to say of a directory that is too large: its size, largest files, and the ways out."""
    largest = sorted(found.files, key=lambda entry: entry.size, reverse=True)[:_NAMED]
    named = ", ".join(f"{entry.path} ({_amount(entry.size)})" for entry in largest)
    most = f"{_amount(archive.MAX_BYTES)} compressed ({_amount(archive.MAX_UNPACKED_BYTES)} unpacked)"
    return (
        f"{found.root} has {len(found.files)} files with {_amount(found.size)}, and at most {most} go along with a "
        f"job: the largest are {named}; name what the job does not need in .dovetailignore, or set a directory on a "
        f"volume, which takes up to {_amount(MAX_VOLUME_BYTES)} (`dovetail config set volumes CLAIM:/data`, "
        "`dovetail config set workdir /data/runs`), or leave the directory out with --no-upload"
    )


def _amount(size: int) -> str:
    """A size for people, such as `12 KiB`."""
    value, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= _STEP and len(units) > 1:
        value /= _STEP
        units.pop(0)
    return f"{value:.0f} {units[0]}" if value >= 10 or units[0] == "bytes" else f"{value:.1f} {units[0]}"


async def _copy(
    cluster: Cluster, *, job: GPUJob, found: listing.Listing, there: place.Place, program: kubectl.Kubectl
) -> None:
    amount = _amount(found.size)
    print(f"dovetail: copying {len(found.files)} files ({amount}) to {there.path} on its volume …", file=sys.stderr)
    async with files_pod(cluster, job=job) as pod:
        # The script names the archive, which it receives, itself.
        _, *received = unpack.arguments(archive="", target=there.path, above=there.above, most_bytes=MAX_VOLUME_BYTES)
        words = program.words(
            "exec", "-i", "-n", cluster.namespace, "-c", CONTAINER, pod, "--",
            "sh", "-c", _RECEIVE, "dovetail-receive", unpack.SCRIPT, there.above, *received,
        )  # fmt: skip
        await asyncio.to_thread(_write, words, found=found)


def _write(command: Sequence[str], *, found: listing.Listing) -> None:
    with kubectl.fed(command) as stdin:
        archive.write(found, sink=stdin)


def _warn(left_out: Sequence[str]) -> None:
    if left_out:
        named = ", ".join(repr(path)[1:-1] for path in left_out[:3])
        more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        print(
            f"dovetail: {named}{more} cannot go along: links to folders, sockets and unusual names stay here",
            file=sys.stderr,
        )


def _warn_of_loss(there: place.Place) -> None:
    print(
        f"dovetail: {there.path} is on no volume: what the job writes there is lost when it ends. To keep it: "
        "`dovetail config set volumes CLAIM:/data` and `dovetail config set workdir /data/runs`",
        file=sys.stderr,
    )
