#!/usr/bin/env bash
# Installs the SDKs that test/clients runs as real agents into .tools/clients:
# py (a virtual environment), node (node_modules) and go (binaries), each pinned
# in test/clients. What is there and up to date is left alone. A part that
# cannot be installed, for example without a network, is named, and its tests
# are skipped by name; the exit code is 0 all the same.
set -uo pipefail
cd "$(dirname "$0")/.."
here=$PWD/test/clients
to=$PWD/.tools/clients
mkdir -p "$to"
if command -v flock >/dev/null 2>&1; then
	exec 9>"$to/lock"
	flock 9
fi

# bounded is for what asks a registry: one that hangs is one that cannot be reached.
if command -v timeout >/dev/null 2>&1; then
	bounded() { timeout -k 10 600 "$@"; }
else
	bounded() { "$@"; }
fi
stamp() { cat "$@" | cksum; }
fresh() { [ "$(cat "$to/$1.stamp" 2>/dev/null)" = "$2" ]; }
apt() {
	command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || return 1
	bounded apt-get -qq update >/dev/null 2>&1
	DEBIAN_FRONTEND=noninteractive bounded apt-get -qq install -y --no-install-recommends "$@" >/dev/null 2>&1
}
# part NAME STAMP COMMAND: runs the command unless its work is there.
part() {
	fresh "$1" "$2" && return
	rm -rf "${to:?}/$1" "$to/$1.stamp"
	echo "installing clients: $1"
	if "$3" >"$to/$1.log" 2>&1; then
		echo "$2" >"$to/$1.stamp"
	else
		rm -rf "${to:?}/$1"
		echo "clients: $1 cannot be installed, its tests are skipped; see .tools/clients/$1.log: $(tail -n 1 "$to/$1.log")" >&2
	fi
}

python() {
	python3 -m venv "$to/py" && "$to/py/bin/pip" --version || {
		rm -rf "$to/py"
		apt python3 python3-venv && python3 -m venv "$to/py"
	} || {
		rm -rf "$to/py"
		bounded python3 -m pip install --user virtualenv && python3 -m virtualenv "$to/py"
	} || return
	bounded "$to/py/bin/pip" install --disable-pip-version-check --no-compile -q -r "$here/python/requirements.txt" -c "$here/python/constraints.txt"
}
node() {
	command -v npm >/dev/null 2>&1 || apt nodejs npm || { echo 'node and npm are missing'; return 1; }
	mkdir -p "$to/node" && cp "$here/node/package.json" "$here/node/package-lock.json" "$to/node/" &&
		bounded npm ci --prefix "$to/node" --no-audit --no-fund --ignore-scripts
}
golang() {
	mkdir -p "$to/go" && (cd "$here/go" && bounded go build -o "$to/go/" ./openai ./anthropic)
}

part go "$(stamp "$here"/go/go.mod "$here"/go/*/*.go)" golang &
part py "$(stamp "$here"/python/*.txt)" python
part node "$(stamp "$here"/node/package*.json)" node
wait
exit 0
