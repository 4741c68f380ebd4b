"""The script that unpacks a job's directory, for a container of its image. Pure.

The image needs `sh`, `tar`, `gzip` (busybox has them), `mktemp`, `mv`, `mkdir`, `chmod`, `rm`, `head` and `wc`. The
archive is a ConfigMap that everyone who may write ConfigMaps in the namespace could have made, so the script has the
rules of `root_folder`: links, devices, absolute names, `..`, control characters, and more bytes, entries or depth than
the limits are refused before anything is written.
"""

from typing import Final

from dovetail_cli.submit.workdir.listing import MAX_ENTRIES
from dovetail_cli.submit.workdir.root_folder import MAX_DEPTH

# Of each entry besides its content: a header, the rest of a block, and a long name in blocks of its own.
_ENTRY_BYTES: Final = 4096

# No $(…) and no {…}: kubelet expands the first, and a sweep's parameters replace the second. The rename at the end
# makes the directory appear at once: workers and tasks that share a volume unpack at the same time, and one wins.
SCRIPT: Final = r"""set -eu
archive=$1 target=$2 above=$3 most=$4
fail() { echo "dovetail: $1" >&2; exit 1; }
[ ! -d "$target" ] || exit 0
for program in tar gzip mktemp; do
  command -v "$program" >/dev/null || fail "the image has no $program, which unpacks the working directory: add it to \
the image, or use gbatch --no-upload"
done
[ `gzip -dc "$archive" | head -c "$most" | wc -c` -lt "$most" ] || fail "the archive has more than $most bytes"
[ `tar -tzf "$archive" | head -n MOST | wc -l` -lt MOST ] || fail "the archive has MOST files and folders or more"
tar -tzf "$archive" | (IFS=/; set -f; while IFS= read -r name; do
  case $name in
    *[[:cntrl:]]*) fail "the archive has a name with control characters" ;;
    /*|..|../*|*/..|*/../*) fail "the archive names $name, which is outside of the directory" ;;
  esac
  set -- $name
  [ $# -le DEPTH ] || fail "the archive has a file or folder that is more than DEPTH deep"
done) || exit 1
tar -tzvf "$archive" | while IFS= read -r line; do
  case $line in
    *' -> '*|*' link to '*) fail "the archive has a link: $line" ;;
    [-d]*) ;;
    *) fail "the archive has more than files and folders: $line" ;;
  esac
done || exit 1
mkdir -p "$above" && staging=`mktemp -d "$above/.unpack-XXXXXX"` ||
  fail "$above cannot be written by the user of the image: set the pod's fsGroup, or another workdir"
trap 'rm -rf "$staging"' EXIT
tar -xzof "$archive" -C "$staging"
chmod 755 "$staging"
mv "$staging" "$target"
# Another worker was first: ours is then a folder inside.
rm -rf "$target/${staging##*/}"
""".replace("MOST", str(MAX_ENTRIES + 1)).replace("DEPTH", str(MAX_DEPTH))


def arguments(*, archive: str, target: str, above: str, most_bytes: int) -> list[str]:
    """The script's words: where archive and directory are, and how much its files may have."""
    return [archive, target, above, str(most_bytes + MAX_ENTRIES * _ENTRY_BYTES)]
