//go:build unix

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/host"
)

// TestDoctorHolder: doctor names the program that embeds Kern and holds the data
// directory, as long as that program holds it.
func TestDoctorHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	k, err := host.Open(host.Config{Dir: w.data()})
	if err != nil {
		t.Fatal(err)
	}
	held := fmt.Sprintf("a program that embeds Kern holds the directory (process %d)", os.Getpid())
	w.env = append(w.env, "COLUMNS=500")
	if out, errs, _ := w.kern("doctor"); !strings.Contains(out, held) {
		t.Errorf("doctor says %s%s", out, errs)
	}
	if out, _, _ := w.kern("doctor", "--json"); !strings.Contains(out, fmt.Sprintf(`"holder":"%d"`, os.Getpid())) {
		t.Errorf("doctor --json says %s", out)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if out, _, _ := w.kern("doctor"); strings.Contains(out, "holds the directory") {
		t.Errorf("after the end of the program doctor says %s", out)
	}
}
