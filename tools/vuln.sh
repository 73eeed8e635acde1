#!/usr/bin/env bash
# Runs govulncheck. Where it, or its database, cannot be had nothing was checked,
# which is said and is no failure of the code.
set -uo pipefail
out=$("$@" 2>&1)
code=$?
echo "$out"
if [ $code -ne 0 ] && grep -qE 'no such host|connection refused|fetching vulnerabilities|i/o timeout|403 Forbidden' <<<"$out"; then
	echo "govulncheck: NOT CHECKED: it or its database cannot be had from here"
	exit 0
fi
exit $code
