#!/usr/bin/env bash
# Runs go test with the arguments given. With KERN_RETRY=1 each package that
# failed is run once more, alone: a package that passes then is named as flaky
# in the last line, and does not fail the run.
set -uo pipefail
: "${GO:=go}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$GO" test -timeout 15m "$@" 2>&1 | tee "$log"
[ "${PIPESTATUS[0]}" = 0 ] && exit 0
[ "${KERN_RETRY:-}" = 1 ] || exit 1

# A package that does not build fails again, so it needs no case of its own.
failed=$(awk '$1 == "FAIL" && $2 ~ /\// {print $2}' "$log" | sort -u)
if [ -z "$failed" ]; then
	echo "go test failed, and named no package" >&2
	exit 1
fi
flaky=()
for package in $failed; do
	echo "== again, alone: $package"
	"$GO" test -count 1 -timeout 15m "$package" || exit 1
	flaky+=("$package")
done
echo "flaky, passed when run alone: ${flaky[*]}"
