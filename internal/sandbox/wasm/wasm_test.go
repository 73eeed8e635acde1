package wasm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/sandbox"
)

func TestCacheDirOfOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{CacheDir: dir})
	var r *sandbox.Refusal
	if !errors.As(err, &r) || !strings.Contains(r.Fix, "chmod") {
		t.Errorf("a CacheDir that all may write to: %v, want a refusal with its mending", err)
	}
}

// What is damaged in the cache is made again, and does not run.
func TestCacheDamaged(t *testing.T) {
	dir := t.TempDir()
	c, err := openCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	load := c.loader("thing", 5, func(b []byte) error {
		made++
		copy(b, "right")
		return nil
	})
	got := func() string {
		t.Helper()
		b := make([]byte, 5)
		if err := load(b); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if first, second := got(), got(); first != "right" || second != "right" || made != 1 {
		t.Fatalf("made %d times, want once", made)
	}
	files, err := filepath.Glob(filepath.Join(dir, "python-*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	for _, damage := range []string{"", "wrong", "wrongsums", "right", strings.Repeat("x", 100)} {
		if err := os.WriteFile(files[0], []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		before := made
		if got() != "right" || made != before+1 {
			t.Errorf("a file with %q was taken", damage)
		}
	}
	if l, _ := os.ReadDir(dir); len(l) != 1 {
		t.Errorf("left behind: %v", l)
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := New(Config{MaxInstances: -1}); err == nil || !strings.Contains(err.Error(), "-1") {
		t.Errorf("MaxInstances -1: %v", err)
	}
	out, err := common.Run(context.Background(), sandbox.Spec{Code: "pass", Limits: sandbox.Limits{Memory: 1 << 20}})
	var r *sandbox.Refusal
	if !errors.As(err, &r) || out.Cause != sandbox.Refused {
		t.Errorf("too little memory for an interpreter: %v, %v; want a refusal", out.Cause, err)
	}
}

func TestClosedBackend(t *testing.T) {
	b, err := New(Config{CacheDir: cacheDir, Warm: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Run(context.Background(), sandbox.Spec{Code: "pass"}); err == nil {
		t.Error("a run on a closed backend")
	}
	if n := b.engine.live.Load(); n != 0 {
		t.Errorf("%d instances left", n)
	}
}
