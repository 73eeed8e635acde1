//go:build linux

package jail_test

import (
	"context"
	"os"
	"testing"

	"github.com/kern-run/kern/internal/sandbox"
	"github.com/kern-run/kern/internal/sandbox/jail"
)

func TestMain(m *testing.M) {
	jail.Main()
	os.Exit(m.Run())
}

func TestTry(t *testing.T) {
	b, err := jail.New(jail.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, s := range []sandbox.Spec{
		{Argv: []string{"true"}},
		{Argv: []string{"sh", "-c", "id; ls -la / /workspace /tmp /dev /proc/self/fd /proc; cat /proc/mounts; env; cat /proc/self/status | head -60; cat /proc/self/cgroup; df"}},
		{Code: "print(1+1)\nimport os; print(os.environ, os.getcwd(), os.listdir('/proc/self/fd'))"},
		{Code: "def f():\n  1/0\nf()"},
		{Dir: t.TempDir(), Code: "open('x','w').write('hi'); import os; print(os.stat('x'))"},
	} {
		out, err := b.Run(context.Background(), s)
		t.Logf("%v %v\n%+v\n%s%s", s.Argv, err, out.Usage, out.Stdout, out.Stderr)
		t.Log(out.Cause, out.Exit, out.Signal)
	}
	t.Log(b.Probe(context.Background()))
}
