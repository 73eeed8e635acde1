#!/bin/sh
# Installs the programs that the tests of this package run inside a view.
# Needs root and apt; does nothing where they are there already.
set -eu
missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need git git
need sqlite3 sqlite3
need cc gcc
need python3 python3
need tar tar
need rsync rsync
need flock util-linux
need mkfs.ext4 e2fsprogs
[ -z "$missing" ] && exit 0
apt-get update -q
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing libc6-dev
