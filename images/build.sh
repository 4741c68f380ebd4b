#!/usr/bin/env bash
# Builds the product's images without a registry: a Debian base by mmdebstrap, the wheel by pip, the rest by buildah.
#
#   images/build.sh [operator|extender|agent|webhook|cli]...     all five without arguments
#
# Prints the path of each archive (`docker save` form, for `ctr images import`); says on stderr what it does.
# Archives are kept in the cache under a hash of what went into them, so a second run prints at once.
set -euo pipefail

readonly SUITE=bookworm
readonly PACKAGES=python3,python3-venv,ca-certificates
readonly DEPLOYABLES="operator extender agent webhook cli"
readonly SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/dovetail/images
# Part of the base's hash: what Debian has fixed is in the images a month later at the latest.
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

base_archive() {
  local archive
  archive=$CACHE/base-$(echo "$SUITE $PACKAGES $MONTH" | digest).tar
  if [[ ! -e $archive ]]; then
    say "Debian $SUITE with $PACKAGES (about 25 s)"
    mmdebstrap --quiet --format=tar --variant=minbase --include="$PACKAGES" --mode=root \
      --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
      --dpkgopt='path-exclude=/usr/share/locale/*' "$SUITE" "$archive.new" >&2
    keep "$archive"
  fi
  echo "$archive"
}

# The new archive takes its place; those of the same image that it replaces go.
keep() {
  local old
  mv "$1.new" "$1"
  for old in "${1%-*}"-*.tar; do
    [[ $old == "$1" ]] || rm -f "$old"
  done
}

# What the Dockerfile copies: the wheel, and which versions it goes with.
context() {
  say "the wheel"
  python3 -m pip wheel --quiet --no-deps --wheel-dir "$WORK/context" "$SOURCE" >&2
  # The versions that the tests ran with. Without the hashes, which pip would then want of the wheel too.
  sed -E -e '/^ *(--hash|#)/d' -e 's/ *\\$//' "$SOURCE/requirements.lock" >"$WORK/context/constraints.txt"
}

storage() { buildah --storage-driver=vfs --root="$WORK/storage" --runroot="$WORK/run" "$@"; }

import_base() {
  local container
  container=$(storage from scratch)
  storage add --quiet "$container" "$1" / >/dev/null
  storage commit --quiet "$container" dovetail.local/base:dev >/dev/null
  storage rm "$container" >/dev/null
}

# Dependencies come from where this machine's pip finds them: its configuration and certificates, for the build only,
# and a cache that the images share.
pip_mounts() {
  local path
  mkdir -p "$CACHE/pip"
  echo "--volume=$CACHE/pip:/root/.cache/pip"
  for path in /etc/ssl/certs /etc/pip.conf; do
    [[ -e $path ]] && echo "--volume=$path:$path:ro"
  done
  [[ -z ${PIP_INDEX_URL:-} ]] || echo "--env=PIP_INDEX_URL=$PIP_INDEX_URL"
}

build() {
  local name=$1 archive=$2 image=dovetail.local/$1:dev mounts
  say "$image (about a minute)"
  storage inspect --type image dovetail.local/base:dev >/dev/null 2>&1 || import_base "$BASE"
  mapfile -t mounts < <(pip_mounts)
  storage bud --quiet --isolation chroot --build-arg BASE=dovetail.local/base:dev --build-arg EXTRA="$name" \
    "${mounts[@]}" --file "$SOURCE/images/Dockerfile" --tag "$image" "$WORK/context" >/dev/null
  storage push --quiet "$image" "docker-archive:$archive.new:$image" >&2
  keep "$archive"
}

main() {
  local name archive
  [[ $# -gt 0 ]] || set -- $DEPLOYABLES
  for name in "$@"; do
    [[ " $DEPLOYABLES " == *" $name "* ]] || fail "unknown image '$name': one of $DEPLOYABLES"
  done
  require
  mkdir -p "$CACHE"
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  BASE=$(base_archive)
  context
  for name in "$@"; do
    archive=$CACHE/$name-$(cat "$WORK"/context/* "$SOURCE/images/Dockerfile" <(echo "$BASE") | digest).tar
    [[ -e $archive ]] || build "$name" "$archive"
    echo "$archive"
  done
}

main "$@"
