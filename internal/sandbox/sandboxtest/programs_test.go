package sandboxtest

import (
	"os/exec"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestProgramsNative(t *testing.T) {
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Logf("no native python3 here: the corpus is compared on the sandboxes only")
		return
	}
	RunNative(t, python)
}
