// Package workspace measures internal/workspace beside the tools without it: a plain
// atomic write with the same syncs, git add && git commit, cp -a. Each benchmark has
// its baseline as a sub-benchmark of the same run.
//
//	go test -run - -bench . -benchtime 30x ./bench/workspace
package workspace
