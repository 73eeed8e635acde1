package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// keyed lists the processes of a world that show a key of a provider in /proc, by their
// command line. Root reads every process.
func (w *world) keyed(key string) (all []string) {
	w.t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		w.t.Fatal(err)
	}
	of := []byte("KERN_DATA=" + w.data() + "\x00") // parallel tests have clients that have just begun
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, of) && bytes.Contains(b, []byte(key)) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
			all = append(all, fmt.Sprintf("%s %q", name, line))
		}
	}
	return all
}

// TestEnvironHidden looks at the environment of the daemon, of clients and supervisors,
// and of a program, while they run: none of them shows the key of the provider. The
// daemon has it nevertheless, also after another client has started it again.
func TestEnvironHidden(t *testing.T) {
	t.Parallel()
	key := fmt.Sprintf("sk-secret-%d-of-the-provider", os.Getpid())
	w := newWorld(t, nil)
	m := newUpstream(t, w, "", true)
	file := filepath.Join(w.data(), "kern.yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), "key_env: UP_KEY") {
		t.Fatalf("%s", b)
	}
	w.env = append(w.env, "OPENAI_API_KEY="+key, "OTHER_COPY=Bearer "+key, "UNRELATED=yes")
	for _, crashed := range []bool{false, true} {
		cmd := w.command("exec", "-q", "--", "sh", "-c", "agent 1 && echo >ready && until [ -e go ]; do sleep 0.02; done; agent 1; echo $UNRELATED")
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.until("the program", func() bool { _, err := os.Stat(w.file("ready")); return err == nil })
		if crashed {
			w.crash()
			w.until("the next daemon", func() bool { return daemonOf(w.data()) != 0 })
			w.ok("ps")
		}
		for _, secret := range []string{key, upstreamKey} {
			if got := w.keyed(secret); len(got) > 0 {
				t.Errorf("crashed %v: a key is in the environment of %s", crashed, strings.Join(got, ", "))
			}
		}
		if err := os.WriteFile(w.file("go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if code := codeOf(cmd.Wait()); code != 0 || strings.Count(out.String(), "a word of the model") != 2 || !strings.HasSuffix(out.String(), "yes\n") {
			t.Errorf("crashed %v: exit %d: %s%s", crashed, code, &out, &errs)
		}
		for _, name := range []string{"ready", "go"} {
			if err := os.Remove(w.file(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := m.Stats().OK; n != 4 {
		t.Errorf("%d requests", n)
	}
}
