# What the scripts that build images share; to be sourced. Archives are kept in the cache under a hash of what went in.

# Debian 13: its Python 3.13 takes the extender a tenth less CPU for a pod than the 3.11 of Debian 12.
readonly SUITE=${SUITE:-trixie}
readonly CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/dovetail/images
# Part of each hash: what Debian has fixed is in the images a month later at the latest.
readonly MONTH=$(date +%Y-%m)

say() { echo "images: $*" >&2; }

fail() { say "$*"; exit 1; }

digest() { sha256sum | cut -c1-16; }

require() {
  local missing=()
  for program in buildah mmdebstrap; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  ((${#missing[@]} == 0)) || fail "needs ${missing[*]}: apt-get install --no-install-recommends ${missing[*]}"
}

# A Debian with those packages as a tar file; what follows the two is mmdebstrap's.
debian() {
  local packages=$1 archive=$2
  shift 2
  mmdebstrap --quiet --format=tar --variant=minbase --include="$packages" --mode=root \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' "$@" "$SUITE" "$archive" >&2
}

# Whether the cache has the archive, which counts as a use of it.
cached() { touch --no-create "$1"; [[ -e $1 ]]; }

# Where an archive is written: a name of this process, because two checkouts may build the same one.
partial() { echo "$1.$$.new"; }

# Puts the finished archive in its place, and removes those of the same image that no build has used for an hour. A
# younger one may be read by a build or a test of another checkout.
keep() {
  mv "$(partial "$1")" "$1"
  find "$CACHE" -maxdepth 1 -type f -name "$(basename "${1%-*}")-*" ! -path "$1" -mmin +60 -delete
}

# Storage of its own in $WORK, so that nothing is left in the user's and two builds never meet.
storage() { buildah --storage-driver=vfs --root="$WORK/storage" --runroot="$WORK/run" "$@"; }
