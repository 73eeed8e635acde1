#!/usr/bin/env bash
# Installs the programs that tests run as real peers. Usage: needs.sh test|race|bench
# With nothing missing it does nothing. Only Debian's package manager is known;
# elsewhere it names what is missing.
set -euo pipefail
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
case "${1:-test}" in
test)
	need git git; need sqlite3 sqlite3; need python3 python3; need tar tar; need rsync rsync
	need gcc gcc; [ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
	need flock util-linux; need mkfs.ext4 e2fsprogs
	;;
race) need gcc gcc ;; # the race detector needs a C compiler
bench) need bwrap bubblewrap; need python3 python3; need sqlite3 sqlite3 ;;
esac
# clients are the SDKs that test/clients runs; without them its tests are skipped by name.
clients() { [ "${1:-test}" != test ] || "$(dirname "$0")/clients.sh"; }
if [ ${#missing[@]} -eq 0 ]; then
	clients "$@"
	exit 0
fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
	echo "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt=(apt-get -qq -o Acquire::http::Timeout=60 -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
	"${apt[@]}" update >/dev/null
	"${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
	clients "$@"
	exit 0
fi
echo "the tests need: ${missing[*]}; install them with the package manager of this system" >&2
exit 1
