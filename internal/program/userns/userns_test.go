//go:build linux

package userns

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRemedy: only what is in the way is named, and something always is.
func TestRemedy(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"Debian", map[string]string{"kernel/unprivileged_userns_clone": "0\n", "user/max_user_namespaces": "15000\n"}, settings[1].fix},
		{"Ubuntu", map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1\n", "kernel/unprivileged_userns_clone": "1\n"}, settings[2].fix},
		{"none", map[string]string{"user/max_user_namespaces": "0\n"}, settings[0].fix},
		{"two", map[string]string{"user/max_user_namespaces": "0\n", "kernel/unprivileged_userns_clone": "0\n"}, settings[0].fix + "; " + settings[1].fix},
		{"a container", map[string]string{"user/max_user_namespaces": "15000\n", "kernel/apparmor_restrict_unprivileged_userns": "0\n"}, remedy("/nowhere/")},
	} {
		dir := t.TempDir() + "/"
		for name, text := range c.files {
			if err := os.MkdirAll(filepath.Dir(dir+name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir+name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := remedy(dir); got != c.want || got == "" {
			t.Errorf("%s: want %q, got %q", c.name, c.want, got)
		}
	}
	if Refused(unix.ENOENT) || !Refused(fmt.Errorf("clone: %w", unix.EPERM)) || !Refused(&os.PathError{Err: unix.ENOSPC}) {
		t.Error("want EPERM and ENOSPC, not ENOENT, taken for a refusal")
	}
}
