#!/bin/sh
# Runs on the base and writes one layer as a tar to standard output: `layer.sh packages-NAME LOCK` or `layer.sh program WHEEL`.
set -eu
umask 022
kind=$1 file=$2
export PYTHONDONTWRITEBYTECODE=1

install() { /opt/dovetail/bin/pip install --quiet --disable-pip-version-check --no-compile "$@" >&2; }

files() { (cd / && find opt/dovetail ! -type d | LC_ALL=C sort); }

# The program starts with these packages. Those that only other images need are missing on purpose; another gap ends the
# build.
check() {
  program=dovetail-$1
  [ "$1" != cli ] || program=dovetail
  install --no-index --no-deps /context/*.whl
  ! /opt/dovetail/bin/pip check | grep -v '^dovetail-gpu .* is not installed\.$' >&2
  "/opt/dovetail/bin/$program" --help >/dev/null
}

rm -rf /opt/dovetail
python3 -m venv /opt/dovetail
files >/tmp/before
case $kind in
  packages-*)
    # By version and hash, as the tests ran with them.
    install --only-binary=:all: --require-hashes --requirement "$file"
    # What no program imports: tests, stubs, and what only compilers read.
    find /opt/dovetail -type d \( -name tests -o -path '*/numpy/_core/include' -o -path '*/numpy/f2py' \) -prune -exec rm -r {} +
    find /opt/dovetail -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.a' \) -delete
    # Many wheels have debug symbols, 12 MB in uvloop alone. The libraries in NAME.libs have none, and strip would damage
    # the headers that auditwheel has rewritten there.
    find /opt/dovetail -name '*.so' ! -path '*.libs/*' -exec strip --strip-unneeded {} +
    find /opt/dovetail -name '*.so' -exec /opt/dovetail/bin/python3 -c \
      'import ctypes, sys; [ctypes.CDLL(path) for path in sys.argv[1:]]' {} +
    # Wheels have no links, so a library with two names is in them twice.
    for library in /opt/dovetail/lib/python3*/site-packages/highspy/libhighs.so.1.*; do
      [ ! -e "$library" ] || ln -sf "${library##*/}" "${library%/*}/libhighs.so.1"
    done
    check "${kind#packages-}"
    /opt/dovetail/bin/pip uninstall --quiet --yes dovetail-gpu pip setuptools >&2
    : >/tmp/before
    ;;
  *) install --no-index --no-deps "$file" ;;
esac
files | LC_ALL=C comm -13 /tmp/before - >/tmp/layer
# Compiled files that do not depend on times, because the root of a container is read-only and the layer has no times.
sed -n 's,\(.*/site-packages/[^/]*\).*,/\1,p' /tmp/layer | sort -u |
  xargs python3 -m compileall -q --invalidation-mode unchecked-hash >&2
files | LC_ALL=C comm -13 /tmp/before - |
  tar --create --directory=/ --files-from=- --mtime=@0 --owner=0 --group=0 --numeric-owner
