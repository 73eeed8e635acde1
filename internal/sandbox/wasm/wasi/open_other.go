//go:build !unix

package wasi

const openQuietly = 0
