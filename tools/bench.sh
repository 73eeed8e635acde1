#!/usr/bin/env bash
# Prints every table of numbers, each with its baseline from the same run.
set -uo pipefail
tools/needs.sh bench || true
code=0
for dir in bench/*/; do
	dir=${dir%/}
	echo
	echo "== go run ./$dir"
	if ls "$dir"/*_test.go >/dev/null 2>&1 && ! grep -qs '^package main' "$dir"/*.go; then
		go test -run '^$' -bench . "./$dir" || code=1
	else
		go run "./$dir" || code=1
	fi
done
exit $code
