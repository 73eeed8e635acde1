#!/bin/bash
# Runs in the machine that tools/vm.sh boots, as root, on what it put onto the
# second disk. Each case ends in lines "ok NAME" or "FAIL NAME"; what a failed one
# said stands before its line.
# packages: internal/program/cgroup internal/program/confine internal/program internal/tools
export PATH=/kern/bin:$PATH TERM=dumb HOME=/root
VERBOSE=
out=$(mktemp -d)
chmod 777 "$out"

# said NAME CODE: tells how a case ended whose words are in $out/NAME.
said() {
	if [ "$2" = 0 ]; then
		echo "ok $1 ($((SECONDS - begun)) s)"
	else
		grep -v -E '^ *(=== |--- PASS|PASS)' "$out/$1" | sed 's/^/    /'
		echo "FAIL $1 (exit $2, $((SECONDS - begun)) s)"
	fi
}

# as WHO COMMAND: root has a service; service is one of a user, with cgroups that
# are his; session is what a user has who logs in; scope is what a terminal of a
# desktop has, a cgroup of the user's own.
as() {
	case $1 in
	root) bash -c "$2" ;;
	session) runuser -l kern -c "export PATH=/kern/bin:\$PATH; $2" ;;
	service) systemd-run --uid=kern --pipe --wait --collect --quiet -p Delegate=yes -p DelegateSubgroup=kern bash -c "export HOME=/home/kern PATH=/kern/bin:\$PATH; $2" ;;
	scope) runuser -l kern -c "export PATH=/kern/bin:\$PATH; systemd-run --user --scope --quiet -- bash -c $(printf %q "$2")" ;;
	*) echo "there is no $1" && return 125 ;;
	esac
}

# suite WHO PACKAGE [TESTS]: the package's tests.
suite() {
	local name=$1-${2//\//-}
	begun=$SECONDS
	rm -rf /kern/tmp && mkdir -m 1777 /kern/tmp
	as "$1" "cd /kern/src/$2 && TMPDIR=/kern/tmp ./it.test -test.v -test.timeout 30m -test.run '${3:-.}' 2>&1" >"$out/$name"
	said "$name" $?
}

# try WHO NAME CODE WORDS COMMAND: a command ends with a code, and says words,
# which are a regular expression.
try() {
	local name=$1-$2 code
	begun=$SECONDS
	as "$1" "cd \$(mktemp -d) && timeout 600 bash -c $(printf %q "$5") 2>&1" </dev/null >"$out/$name"
	code=$?
	if [[ $code = "$3" || $3 = any ]] && grep -qE -- "$4" "$out/$name"; then
		said "$name" 0
	else
		echo "    it exits $code, and must exit $3 and say $4" >>"$out/$name"
		said "$name" 1
	fi
	[ -z "$VERBOSE" ] || sed 's/^/    | /' "$out/$name"
}

# held: bounds and the jail of kern exec, where cgroups can be made.
held() {
	try "$1" memory 137 'memory 64MiB was used up' "kern exec --memory 64MiB -- python3 -c 'bytearray(10**9)'"
	try "$1" enough 0 'done' "kern exec --memory 256MiB -- python3 -c 'bytearray(10**7)'"
	try "$1" bomb 2 'more processes than --processes 50' "kern exec --processes 50 -- sh -c 'f() { f | f & f; }; f' 2>&1 | grep -v fork; exit \${PIPESTATUS[0]}"
	try "$1" both 137 'memory 64MiB was used up' "kern exec --sandbox jail --memory 64MiB --processes 9 -- python3 -c 'bytearray(10**9)'"
}
jailed() {
	try "$1" jail 0 refused "kern exec --sandbox jail -- bash -c 'cat /home/kern/.profile && exit 9; exec 3<>/dev/tcp/10.0.2.2/80 || echo refused'"
}
# within: what bounds the unit around kern exec bounds the program, or it is not
# started.
within() {
	local who=$1 run="$2 -p MemoryMax=160M" mine='-p Delegate=yes'
	try "$who" within 0 '[.](scope|service)/kern-jail-' "$run $mine kern exec --memory 1GiB -- cat /proc/self/cgroup"
	try "$who" within-unit 137 'SIGKILL ·' "$run $mine kern exec --memory 1GiB -- python3 -c 'bytearray(10**9)'"
	try "$who" within-own 137 'memory 64MiB was used up' "$run $mine kern exec --memory 64MiB -- python3 -c 'bytearray(10**9)'"
	try "$who" within-jail 137 'memory 64MiB was used up' "$run $mine kern exec --sandbox jail --memory 64MiB -- python3 -c 'bytearray(10**9)'"
	try "$who" beside 125 'memory.max of .* is 167772160, and would not hold' "$run kern exec --memory 64MiB -- echo ran"
	try "$who" nested 125 'memory.max of .* is 67108864, and would not hold' "$run $mine kern exec --memory 64MiB -- kern exec --memory 1GiB -- echo ran"
	try "$who" crowd 0 '^77$' "$2 -p TasksMax=77 kern exec -q --memory 64MiB -- sh -c 'cat /sys/fs/cgroup\$(cut -d: -f3 /proc/self/cgroup)/pids.max'"
}
exec_root() { held root && jailed root; }
exec_within() {
	within session 'systemd-run --user --scope --quiet'
	within root 'systemd-run --pipe --wait --collect --quiet --setenv=PATH --setenv=HOME --same-dir'
}
exec_scope() { held scope && jailed scope; }
exec_service() { held service; }
exec_session() {
	jailed session
	try session doctor any 'exec in a jail +ok' 'kern doctor'
	for flag in '--memory 64MiB' '--processes 50' '--sandbox jail --memory 64MiB'; do
		try session "refused${flag// /}" 125 'systemd-run --user --scope' "kern exec $flag -- echo ran"
	done
	for setting in user.max_user_namespaces kernel.unprivileged_userns_clone; do
		local was
		was=$(sysctl -n $setting 2>/dev/null) || continue
		sysctl -qw $setting=0
		try session "$setting" 125 "sysctl -w $setting" 'kern exec --sandbox jail -- echo ran'
		try session "$setting-code" any "sysctl -w $setting" "echo 'print(1)' >a.py; kern code --sandbox jail --allow memory,cpu,processes,landlock a.py"
		sysctl -qw $setting="$was"
	done
}
case_look() {
	uname -a
	systemctl --version | head -1
	for who in root service session scope; do
		as $who "echo $who; id; cat /proc/self/cgroup; ls -ld /sys/fs/cgroup\$(cut -d: -f3 /proc/self/cgroup)"
	done
}
echo # after what the console was set up with
packages=$(sed -n 's/^# packages: //p' "$0")
for case in $(cat /kern/cases); do
	who=${case%%:*}
	case $case in
	look) case_look ;;
	exec:*) "exec_${case#exec:}" ;;
	*:*:*) suite $(IFS=:; echo $case) ;;
	*:*) suite "$who" "${case#*:}" ;;
	*) for p in $packages; do suite "$who" "$p"; done ;;
	esac
done
echo "kern-vm: all said"
