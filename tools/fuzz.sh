#!/usr/bin/env bash
# Runs every fuzz target of the module for a while each. Usage: fuzz.sh 30s
set -euo pipefail
for dir in $(git ls-files '*_test.go' | xargs grep -l '^func Fuzz' | xargs -n1 dirname | sort -u); do
	for target in $(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | cut -c6-); do
		echo "== $dir $target"
		# What takes a pool or a map varies in what it covers, and would be made smaller all the time.
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 2s "./$dir"
	done
done
