//go:build unix

package wasm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kern-run/kern/internal/sandbox"
)

func TestTrapDirMountIsNoJail(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(secret, []byte("canary"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "planted")); err != nil {
		t.Fatal(err)
	}
	code := `import os
for f in (lambda: os.symlink('../../../etc', 'l'), lambda: os.symlink('/etc', 'l'), lambda: os.symlink('a', 'b'), lambda: os.link('planted', 'l'),
          lambda: open('planted').read(), lambda: open('planted', 'w'), lambda: os.mkfifo('f'), lambda: os.mknod('n'), lambda: open('fifo'), lambda: os.stat('planted')):
    try: print('done', f())
    except (OSError, AttributeError) as e: print('no')
print(os.readlink('planted') != '', sorted(os.listdir('.')))`
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := common.Run(context.Background(), sandbox.Spec{Code: code, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, out, sandbox.OK, strings.Repeat("no\n", 10)+"True ['fifo', 'planted']\n")
}
