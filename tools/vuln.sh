#!/usr/bin/env bash
# Runs govulncheck. Where its database cannot be reached nothing was checked,
# which is said and is no failure of the code.
set -uo pipefail
out=$("$@" 2>&1)
code=$?
echo "$out"
if [ $code -ne 0 ] && grep -qE 'no such host|connection refused|fetching vulnerabilities|i/o timeout' <<<"$out"; then
	echo "govulncheck: NOT CHECKED: its database cannot be reached from here"
	exit 0
fi
exit $code
