//go:build !linux

package kern_test

const crashEnv = "KERN_TEST_CRASH"

func crashChild(string) { panic("nothing crashes itself here") }
