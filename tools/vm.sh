#!/usr/bin/env bash
# Runs what depends on the host's kernel and on systemd in a machine of its own
# with a stock Debian: cgroups of version 2, a service of root, the session of
# an ordinary user. Usage: tools/vm.sh [CASE...], where CASE is WHO:PACKAGE[:TESTS]
# or exec:WHO for programs under kern exec, and WHO is root, service, session or
# scope; WHO alone is all packages of test/vm/inside.sh. exec:within tries what bounds
# the unit around kern exec. With no case it runs what
# is near the system, for each of them. VERBOSE=1 keeps what passed in the log.
#
# The machine is User Mode Linux: Debian's kernel as a program, which needs no
# hardware to help. What is missing is downloaded once, into
# KERN_VM_CACHE: some 500 MB. The archive signs these packages, and nothing pins their
# versions: another day may give others. KERN_VM_TIME is how many seconds it may take.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${KERN_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kern-vm}
suite=trixie
missing=()
for c in apt-get dpkg-deb mmdebstrap genext2fs mke2fs resize2fs e2fsck timeout; do
	command -v "$c" >/dev/null 2>&1 || missing+=("$c")
done
if [ ${#missing[@]} -gt 0 ]; then
	echo "tools/vm.sh needs ${missing[*]}: apt-get install mmdebstrap genext2fs e2fsprogs" >&2
	exit 1
fi

# kernel takes the kernel out of its package.
kernel() {
	[ -x "$cache/uml/usr/bin/linux.uml" ] && return
	echo "taking the kernel into $cache"
	rm -rf "$cache/uml" && mkdir -p "$cache/uml"
	(cd "$cache/uml" && apt-get -qq download user-mode-linux 2>/dev/null && dpkg-deb -x user-mode-linux_*.deb . && rm user-mode-linux_*.deb)
}

# image makes the first disk of the machine, unless the one there is of the same
# recipe.
image() {
	local recipe
	recipe=$(declare -f image | cat - test/vm/kern-vm.service | cksum)
	[ "$(cat "$cache/recipe" 2>/dev/null)" = "$recipe" ] && return
	echo "making the image of $suite in $cache"
	rm -f "$cache/recipe" "$cache/root.img"
	mmdebstrap --quiet --variant=minbase --format=ext2 --aptopt='APT::Install-Recommends "false"' \
		--include=systemd-sysv,dbus-user-session,libpam-systemd,python3,procps,util-linux,git,rsync,sqlite3,passwd,login \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--customize-hook='chroot "$1" useradd --create-home --shell /bin/bash --uid 1000 kern' \
		--customize-hook='copy-in test/vm/kern-vm.service /etc/systemd/system' \
		--customize-hook='mkdir -p "$1/etc/systemd/system/multi-user.target.wants" "$1/etc/systemd/system.conf.d"' \
		--customize-hook='ln -s ../kern-vm.service "$1/etc/systemd/system/multi-user.target.wants/"' \
		--customize-hook='printf "[Manager]\nDefaultTimeoutStartSec=30min\nDefaultDeviceTimeoutSec=30min\n" >"$1/etc/systemd/system.conf.d/slow.conf"' \
		"$suite" "$cache/root.img"
	truncate -s 2G "$cache/root.img"
	e2fsck -fp "$cache/root.img" >/dev/null || [ $? = 1 ]
	resize2fs "$cache/root.img" >/dev/null 2>&1
	echo "$recipe" >"$cache/recipe"
}

# payload makes the second disk: the tests, what they read, and what to run.
payload() {
	local to=$cache/payload
	rm -rf "$to" && mkdir -p "$to/bin"
	export CGO_ENABLED=0
	go build -trimpath -o "$to/bin/kern" ./cmd/kern
	for p in $(sed -n 's/^# packages: //p' test/vm/inside.sh); do
		mkdir -p "$to/src/$p"
		go test -c -o "$to/src/$p/it.test" "./$p"
		[ ! -d "$p/testdata" ] || cp -R "$p/testdata" "$to/src/$p/"
	done
	sed "s/^VERBOSE=.*/VERBOSE=${VERBOSE:-}/" test/vm/inside.sh >"$to/inside.sh"
	chmod 755 "$to/inside.sh"
	echo "$@" >"$to/cases"
	rm -f "$cache/payload.img"
	mke2fs -q -t ext4 -L kern-payload -d "$to" "$cache/payload.img" 3G
}

near='TestScope|TestBounds|TestJail|TestKilled'
[ $# -gt 0 ] || set -- exec:root exec:service exec:session exec:scope exec:within {root,session,scope}:internal/program/cgroup \
	{root,session,scope}:internal/program:"$near" scope:internal/tools
mkdir -p "$cache"
begun=$SECONDS
kernel
image
payload "$@"
echo "booting, $((SECONDS - begun)) s after the start"
rm -f "$cache/cow"
timeout -k 10 "${KERN_VM_TIME:-3600}" "$cache/uml/usr/bin/linux.uml" ubd0="$cache/cow,$cache/root.img" ubd1="$cache/payload.img" mem=2G \
	root=/dev/ubda rootfstype=ext4 rw con=null con0=null,fd:1 ssl=null systemd.show_status=0 quiet </dev/null 2>&1 |
	tee "$cache/log" | grep --line-buffered -E '^(ok|FAIL) ' || true
rm -f "$cache/cow"
echo "$((SECONDS - begun)) s in all; what was said is in $cache/log"
if ! grep -q '^kern-vm: all said' "$cache/log"; then
	echo "FAIL: the machine did not come to its end" && exit 1
fi
! grep -q '^FAIL ' "$cache/log"
