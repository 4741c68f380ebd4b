#!/usr/bin/env bash
# Builds the product's images without a registry: a Debian base by mmdebstrap, the layers by buildah.
#
#   images/build.sh [operator|extender|agent|webhook|certificates|gateway|cli]...     all seven without arguments
#
# Prints the path of each archive (`docker save` form, for `ctr images import`); says on stderr what it does.
# An image is three layers: Debian with Python, the packages that the program needs, and the wheel, which all images share.
# Archives and layers are kept in the cache under a hash of what went into them: a change of the code makes one layer of a
# few megabytes again.
set -euo pipefail
# A layer that fails ends the build, although its path is read from a command substitution.
shopt -s inherit_errexit

readonly PACKAGES=python3,python3-venv,ca-certificates
# Where the layers are made: `strip`, which no image has.
readonly TOOLS=binutils
readonly DEPLOYABLES="operator extender agent webhook certificates gateway cli"
readonly SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=images/lib.sh
source "$SOURCE/images/lib.sh"

debian_archive() {
  local name=$1 packages=$2 archive
  archive=$CACHE/$name-$(echo "$SUITE $packages $MONTH" | digest).tar
  if ! cached "$archive"; then
    say "Debian $SUITE with $packages (about 25 s)"
    debian "$packages" "$(partial "$archive")"
    keep "$archive"
  fi
  echo "$archive"
}

# The wheel, and for each image the packages that it needs, with versions and hashes.
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

# Runs images/layer.sh on the base with the tools, in a container that all layers share; its standard output is the layer.
layer() {
  local archive=$1 mounts
  shift
  if [[ ! -e $WORK/container ]]; then
    storage from scratch >"$WORK/container"
    storage add --quiet "$(cat "$WORK/container")" "$(debian_archive tools "$PACKAGES,$TOOLS")" / >/dev/null
  fi
  mapfile -t mounts < <(pip_mounts)
  storage run --isolation chroot --volume "$WORK/context:/context:ro" --volume "$SOURCE/images:/images:ro" "${mounts[@]}" \
    "$(cat "$WORK/container")" -- sh /images/layer.sh "$@" >"$(partial "$archive")"
  keep "$archive"
}

# The base and its digest are part of each name, so that a layer never meets another base.
layer_archive() {
  local kind=$1 archive
  archive=$CACHE/layer-$kind-$( (cat "$2" "$SOURCE/images/layer.sh"; echo "$BASE") | digest).tar
  if ! cached "$archive"; then
    say "layer: $kind"
    layer "$archive" "$kind" "/context/${2##*/}"
  fi
  echo "$archive"
}

main() {
  local name archive packages program layers
  [[ $# -gt 0 ]] || set -- $DEPLOYABLES
  for name in "$@"; do
    [[ " $DEPLOYABLES " == *" $name "* ]] || fail "unknown image '$name': one of $DEPLOYABLES"
  done
  require
  mkdir -p "$CACHE"
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  BASE=$(debian_archive base "$PACKAGES")
  context "$@"
  for name in "$@"; do
    packages=$(layer_archive "packages-$name" "$WORK/context/$name.lock")
    program=$(layer_archive program "$WORK"/context/*.whl)
    layers=("$BASE" "$packages" "$program")
    archive=$CACHE/$name-$( (echo "${layers[@]}"; cat "$SOURCE/images/assemble.py") | digest).tar
    if ! cached "$archive"; then
      python3 "$SOURCE/images/assemble.py" "$name" "$(partial "$archive")" "${layers[@]}" >&2
      keep "$archive"
    fi
    echo "$archive"
  done
}

main "$@"
