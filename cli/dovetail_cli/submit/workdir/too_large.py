"""What to say of a directory that is too large to go along. Pure."""

from typing import Final

from dovetail_cli.submit.workdir.archive import MAX_BYTES, MAX_UNPACKED_BYTES
from dovetail_cli.submit.workdir.listing import Listing

_NAMED: Final = 3
_STEP: Final = 1024


def sentence(listing: Listing, *, volume_bytes: int) -> str:
    """Its size, its largest files, and the ways out; a volume takes at most `volume_bytes`."""
    largest = sorted(listing.files, key=lambda entry: entry.size, reverse=True)[:_NAMED]
    named = ", ".join(f"{entry.path} ({amount(entry.size)})" for entry in largest)
    return (
        f"{listing.root} has {len(listing.files)} files with {amount(listing.size)}, and at most "
        f"{amount(MAX_BYTES)} compressed ({amount(MAX_UNPACKED_BYTES)} unpacked) go along with a job: the largest are "
        f"{named}; name what the job does not need in .dovetailignore, or set a directory on a volume, which takes up "
        f"to {amount(volume_bytes)} (`dovetail config set volumes CLAIM:/data`, `dovetail config set workdir "
        "/data/runs`), or leave the directory out with --no-upload"
    )


def amount(size: int) -> str:
    """A size for people, such as `12 KiB`."""
    value, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= _STEP and len(units) > 1:
        value /= _STEP
        units.pop(0)
    return f"{value:.0f} {units[0]}" if value >= 10 or units[0] == "bytes" else f"{value:.1f} {units[0]}"
