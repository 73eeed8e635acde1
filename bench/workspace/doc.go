// Package workspace measures internal/workspace beside what people do without
// it: a plain atomic write with the same syncs, git add && git commit, cp -a.
// Each benchmark names its baseline as a sub-benchmark of the same run.
//
//	go test -run - -bench . -benchtime 30x ./bench/workspace
package workspace
