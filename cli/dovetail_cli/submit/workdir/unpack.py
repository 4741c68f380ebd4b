"""The script that unpacks a job's directory, for a container of its image. Data only.

The image needs `sh`, `tar`, `gzip` (busybox has them), `mktemp`, `mv`, `mkdir`, `chmod` and `rm`. The archive is a
ConfigMap that everyone who may write ConfigMaps in the namespace could have made, so the script unpacks nothing but
regular files and folders below the target: links, devices, absolute names and `..` are refused before anything is
written.
"""

from typing import Final

# No $(…) and no {…}: kubelet expands the first, and a sweep's parameters replace the second. The rename at the end
# makes the directory appear at once: workers and tasks that share a volume unpack at the same time, and one wins.
SCRIPT: Final = r"""set -eu
archive=$1 target=$2 above=$3
fail() { echo "dovetail: $1" >&2; exit 1; }
[ ! -d "$target" ] || exit 0
for program in tar gzip mktemp; do
  command -v "$program" >/dev/null || fail "the image has no $program, which unpacks the working directory: add it to \
the image, or use gbatch --no-upload"
done
tar -tzf "$archive" | while IFS= read -r name; do
  case $name in /*|..|../*|*/..|*/../*) fail "the archive names $name, which is outside of the directory" ;; esac
done || exit 1
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
"""
