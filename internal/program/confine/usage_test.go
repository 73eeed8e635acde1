//go:build linux

package confine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTally: what a tree holds is its blocks, each file once, however it is
// named, whatever its size claims, and nothing that a link only points at.
func TestTally(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, n int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a", 100_000)
	deep := dir
	for i := range 50 {
		deep = filepath.Join(deep, fmt.Sprint(i))
	}
	for _, err := range []error{
		os.MkdirAll(deep, 0o700),
		os.Link(filepath.Join(dir, "a"), filepath.Join(deep, "a again")),
		os.Symlink("/usr", filepath.Join(dir, "usr")),
		os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o600),
		os.Truncate(filepath.Join(dir, "sparse"), 1<<40),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got tally
	got.dir(fd)
	// a, 50 directories, the link, the sparse file, the FIFO.
	if got.err != nil || got.files != 54 || got.largest != 1<<40 {
		t.Errorf("want 54 files, the largest of 2^40 bytes, got %d and %d, %v", got.files, got.largest, got.err)
	}
	if got.bytes < 100_000 || got.bytes > 100_000+60*4096 {
		t.Errorf("want the blocks of one file and fifty directories, got %d bytes", got.bytes)
	}
}

// TestTimeAndPages: a program that chooses its name to look like more fields is
// counted as any other.
func TestTimeAndPages(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x) R 0 0 0")
	if err := os.Symlink("/bin/sh", name); err != nil {
		t.Fatal(err)
	}
	// Its answer proves that it runs under its name and has used some time.
	cmd := exec.Command(name, "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; read line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(stat), "(x) R 0 0 0)") {
		t.Fatalf("the name is not as chosen: %s", stat)
	}
	var size, resident int64
	fmt.Sscan(string(statm), &size, &resident)
	ticks, pages := timeAndPages(stat)
	if ticks == 0 || ticks > 100*3600 || pages < resident/2 || pages > 2*resident {
		t.Errorf("want some ticks and about %d pages, got %d and %d from %s", resident, ticks, pages, stat)
	}
}
