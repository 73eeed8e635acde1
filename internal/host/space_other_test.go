//go:build !linux

package host_test

const crashEnv = "KERN_TEST_CRASH"

func crashChild(string) { panic("nothing crashes itself here") }
