#!/usr/bin/env bash
# Builds the product's images without a registry: a Debian base by mmdebstrap, the wheel by pip, the rest by buildah.
#
#   images/build.sh [operator|extender|agent|webhook|certificates|gateway|cli]...     all seven without arguments
#
# Prints the path of each archive (`docker save` form, for `ctr images import`); says on stderr what it does.
# Archives are kept in the cache under a hash of what went into them, so a second run prints at once.
set -euo pipefail

readonly PACKAGES=python3,python3-venv,ca-certificates
readonly DEPLOYABLES="operator extender agent webhook certificates gateway cli"
readonly SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=images/lib.sh
source "$SOURCE/images/lib.sh"

base_archive() {
  local archive
  archive=$CACHE/base-$(echo "$SUITE $PACKAGES $MONTH" | digest).tar
  if [[ ! -e $archive ]]; then
    say "Debian $SUITE with $PACKAGES (about 25 s)"
    debian "$PACKAGES" "$archive.new"
    keep "$archive"
  fi
  echo "$archive"
}

# What the Dockerfile copies: the wheel, and for each image the packages that it needs, with versions and hashes.
context() {
  local name
  say "the wheel"
  mkdir -p "$WORK/context"
  # The build backend has the version and hash that the lock file says too: an isolated build would fetch the newest.
  python3 "$SOURCE/images/lock.py" --names hatchling >"$WORK/build.lock"
  python3 -m venv "$WORK/build"
  "$WORK/build/bin/pip" install --quiet --disable-pip-version-check --only-binary=:all: --require-hashes \
    --requirement "$WORK/build.lock" >&2
  "$WORK/build/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir "$WORK/context" "$SOURCE" >&2
  for name in "$@"; do
    python3 "$SOURCE/images/lock.py" "$name" >"$WORK/context/$name.lock"
  done
}

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
  storage bud --quiet --isolation chroot --build-arg BASE=dovetail.local/base:dev --build-arg IMAGE="$name" \
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
  context "$@"
  for name in "$@"; do
    archive=$CACHE/$name-$(cat "$WORK"/context/*.whl "$WORK/context/$name.lock" "$SOURCE/images/Dockerfile" <(echo "$BASE") | digest).tar
    [[ -e $archive ]] || build "$name" "$archive"
    echo "$archive"
  done
}

main "$@"
