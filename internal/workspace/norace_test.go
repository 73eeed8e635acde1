//go:build !race

package workspace

const racing = false
