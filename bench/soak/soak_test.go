package main

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/leaktest"
)

// TestMain is also the program that kern exec runs.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "agent" {
		runAgentProgram()
		return
	}
	leaktest.Main(m)
}

// TestSoak is a short soak with a crash or two. KERN_SOAK=1 makes it ten minutes.
func TestSoak(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it reads what Linux says of processes")
	}
	o := options{length: 8 * time.Second, life: 4 * time.Second, seed: uint64(time.Now().UnixNano()), clients: 8, tenants: 10}
	if os.Getenv("KERN_SOAK") != "" {
		o.length, o.life = 10*time.Minute, time.Minute
	}
	if err := o.soak(t.Context()); err != nil {
		t.Fatal(err)
	}
}
