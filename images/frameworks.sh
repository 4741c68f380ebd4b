#!/usr/bin/env bash
# Builds one image with what the examples' training images bring, for tests on the real node: PyTorch (Debian's build for
# the CPU), Open MPI with mpi4py, and an SSH server with keys. No registry is involved.
#
# Prints the path of the archive (`docker save` form, 1.2 GB; made in about four minutes, then kept in the cache).
set -euo pipefail

readonly SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# What is set up below is for the PyTorch and the Open MPI of Debian 12.
SUITE=bookworm
# shellcheck source=images/lib.sh
source "$SOURCE/images/lib.sh"

readonly PACKAGES=python3-torch,python-is-python3,openmpi-bin,python3-mpi4py,openssh-server
readonly IMAGE=dovetail.local/frameworks:dev

# The keys are this machine's own, made anew with each image. Hosts are new with each job, so nobody can know theirs.
set_up() {
  cat <<'SETUP'
set -eu
# Debian's torchrun does not start on Debian's Python 3.11: members of a Flag that are 0 are no longer among its members.
sed -i 's/for s in Std:/for s in map(Std, range(4)):/' \
  /usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py
mkdir -p /root/.ssh
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
printf 'Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n' >/root/.ssh/config
chmod -R go= /root/.ssh
cat >/root/train <<'TRAIN'
#!/usr/bin/python3
import socket
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(f"rank {world.rank} of {world.size} on {socket.gethostname()}: the sum is {total}", flush=True)
TRAIN
chmod +x /root/train
SETUP
}

build() {
  local archive=$1 container
  say "$IMAGE (about four minutes)"
  set_up >"$WORK/set-up"
  debian "$PACKAGES" "$WORK/root.tar" --dpkgopt='path-exclude=/usr/lib/libtorch-test/*' \
    --customize-hook="copy-in $WORK/set-up /tmp" --customize-hook='chroot "$1" sh /tmp/set-up && rm "$1/tmp/set-up"'
  container=$(storage from scratch)
  storage add --quiet "$container" "$WORK/root.tar" / >/dev/null
  rm "$WORK/root.tar"
  # What sshd wants to find, and mmdebstrap leaves out with all of /run.
  mkdir "$WORK/empty"
  storage copy --quiet "$container" "$WORK/empty" /run/sshd >/dev/null
  # Open MPI asks to be told twice that it may run as root.
  storage config --workingdir /root --env PATH=/usr/sbin:/usr/bin:/sbin:/bin --env PYTHONUNBUFFERED=1 \
    --env OMPI_ALLOW_RUN_AS_ROOT=1 --env OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$container"
  storage commit --quiet "$container" "docker-archive:$(partial "$archive"):$IMAGE" >&2
  keep "$archive"
}

main() {
  local archive
  require
  mkdir -p "$CACHE"
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  archive=$CACHE/frameworks-$(cat "${BASH_SOURCE[0]}" "$SOURCE/images/lib.sh" <(echo "$MONTH") | digest).tar
  cached "$archive" || build "$archive"
  echo "$archive"
}

main "$@"
