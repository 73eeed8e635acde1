package workspace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kern-run/kern/internal/workspace/git"
)

// TestLogFollow: a process follows the records that another process appends, also
// after the log was rewritten.
func TestLogFollow(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	a, err := openLog(name, true)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := openLog(name, true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range uint64(20) {
		if err := a.Append(logRecord{Kind: kindIntent, Head: git.Head{Seq: i + 1}, Intent: &intent{Note: git.Note{ID: "x"}}}); err != nil {
			t.Fatal(err)
		}
		if i%5 == 4 {
			if err := a.Rewrite(); err != nil {
				t.Fatal(err)
			}
		}
		moved, err := b.Follow()
		if err != nil || !moved || b.Pending() == nil || b.Pending().Seq != i+1 {
			t.Fatalf("after %d: %t %v %+v", i, moved, err, b.Now())
		}
		if err := a.Append(logRecord{Kind: kindSeal, Head: git.Head{Seq: i + 1}}); err != nil {
			t.Fatal(err)
		}
		if moved, err := b.Follow(); err != nil || !moved || b.Pending() != nil || b.Now().Seq != i+1 {
			t.Fatalf("after sealing %d: %t %v %+v", i, moved, err, b.Now())
		}
	}
	if moved, err := b.Follow(); err != nil || moved {
		t.Fatalf("nothing was written, but: %t %v", moved, err)
	}
	fi, err := os.Stat(name)
	if err != nil || fi.Size() > 1<<20 {
		t.Fatalf("%v %v", fi.Size(), err)
	}
}
