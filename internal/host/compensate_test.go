package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/syscalls"
)

// Mutants that die here: undoing forward; what was undone is undone again after
// a restart; a group that went well is undone; the model is not told.

type seat struct {
	Seat string `json:"seat"`
}

type ticket struct {
	ID string `json:"id"`
}

// travel are tools that write down what they do. A cancellation of the ticket
// that dies names kills its process the first time.
func travel(log string, cancel abi.Effect, dies string) []host.Callable {
	note := func(format string, a ...any) error {
		f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(f, format+"\n", a...)
		return errors.Join(err, f.Close())
	}
	return []host.Callable{
		host.Tool("book", "Book.", func(_ context.Context, v seat) (ticket, error) {
			return ticket{"t-" + v.Seat}, note("book %s", v.Seat)
		}).UndoneBy("cancel", map[string]any{"id": "$result/id"}),
		host.Tool("rent", "Rent.", func(_ context.Context, v seat) (ticket, error) {
			return ticket{"r-" + v.Seat}, note("rent %s", v.Seat)
		}).UndoneBy("nocancel", nil),
		host.Tool("cancel", "Cancel.", func(_ context.Context, v ticket) (string, error) {
			before, _ := os.ReadFile(log)
			if err := note("cancel %s", v.ID); err != nil {
				return "", err
			}
			if v.ID == dies && !strings.Contains(string(before), "cancel "+dies) {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return "", nil
		}).As(cancel),
		host.Tool("nocancel", "Fail.", func(context.Context, map[string]any) (string, error) { return "", errors.New("no way back") }),
		host.Tool("pay", "Pay.", func(context.Context, seat) (string, error) { return "", errors.New("no money") }),
	}
}

const trip = `
replies:
  - calls:
      - {tool: book, args: {seat: a}}
      - {tool: rent, args: {seat: car}}
      - {tool: book, args: {seat: b}}
      - {tool: pay, args: {seat: all}}
  - calls: [{tool: book, args: {seat: c}}]
  - text: done
`

// told is what the process was told of an undoing.
func told(t *testing.T, k *host.Kernel, pid abi.Pid) (u syscalls.Undone) {
	t.Helper()
	n := 0
	if err := k.Records(t.Context(), pid, 0, false, func(r *abi.Record) error {
		if r.Intent == nil || r.Intent.Row != "model" || r.Intent.Say.Size == 0 {
			return nil
		}
		n++
		b, err := k.Bytes(r.Intent.Say)
		if err != nil {
			return err
		}
		return json.Unmarshal(b, &u)
	}); err != nil {
		t.Fatal(err)
	}
	if n != 1 {
		t.Errorf("the model was told %d times, want once", n)
	}
	return u
}

// TestGroupUndone: when a call of a reply fails, the others are undone in
// reverse order, and what could not be undone is said.
func TestGroupUndone(t *testing.T) {
	w := newWorld(t, trip)
	log := filepath.Join(t.TempDir(), "log")
	k := w.open()
	r := w.run(k, host.Agent{Parallel: 1, Tools: travel(log, abi.Irreversible, "")})
	if r.Output != "done" {
		t.Fatalf("%+v", r)
	}
	b, err := os.ReadFile(log)
	if want := "book a\nrent car\nbook b\ncancel t-b\ncancel t-a\nbook c\n"; err != nil || string(b) != want {
		t.Errorf("%v, it did\n%s want\n%s", err, b, want)
	}
	u := told(t, k, r.Pid)
	if len(u.Undone) != 2 || u.Undone[0].By != "cancel" || string(u.Undone[0].Args) != `{"seat":"b"}` || u.Undone[1].Call != 2 {
		t.Errorf("undone: %+v", u.Undone)
	}
	if len(u.Kept) != 1 || u.Kept[0].Tool != "rent" || u.Kept[0].Err == nil || u.Kept[0].Err.Code != abi.ToolFailed {
		t.Errorf("not undone: %+v", u.Kept)
	}
	if re, err := k.Replay(t.Context(), r.Pid, nil); err != nil || !re.Same {
		t.Errorf("%+v %v", re, err)
	}
	if r.Usage.ToolCalls != 8 { // four, three to undo them, one
		t.Errorf("%d tool calls are booked, want 8", r.Usage.ToolCalls)
	}
}

// TestUndoneOnce kills the kernel with -9 in the middle of an undoing. It goes
// on after the restart; what was undone is not undone again, and what nobody saw
// the end of is said when it cannot be repeated.
func TestUndoneOnce(t *testing.T) {
	for _, c := range []struct {
		cancel abi.Effect
		dies   string
		did    string
		undone int
	}{
		{abi.Idempotent, "t-a", "cancel t-b\ncancel t-a\ncancel t-a\nbook c\n", 2},
		{abi.Irreversible, "t-a", "cancel t-b\ncancel t-a\nbook c\n", 1},
		{abi.Irreversible, "t-b", "cancel t-b\ncancel t-a\nbook c\n", 1},
	} {
		t.Run(string(c.cancel)+" "+c.dies, func(t *testing.T) {
			w := newWorld(t, trip)
			j := &crashJob{Dir: w.dir, Script: w.script, Effect: c.cancel, Ran: filepath.Join(t.TempDir(), "log"), Dies: c.dies}
			if got := j.die(t, -1); got != "" {
				t.Fatal("the first run lived:", got)
			}
			if got := j.die(t, -1); got != "lived" {
				t.Fatal("the second run died")
			}
			b, err := os.ReadFile(j.Ran)
			if want := "book a\nrent car\nbook b\n" + c.did; err != nil || string(b) != want {
				t.Errorf("%v, it did\n%s want\n%s", err, b, want)
			}
			k := w.open()
			u := told(t, k, 1)
			if len(u.Undone) != c.undone || len(u.Undone)+len(u.Kept) != 3 {
				t.Errorf("%+v", u)
			}
			for _, x := range u.Kept {
				if x.Tool == "book" && x.Err.Code != abi.OutcomeUnknown {
					t.Errorf("%+v %+v", x, x.Err)
				}
			}
			if re, err := k.Replay(t.Context(), 1, nil); err != nil || !re.Same {
				t.Errorf("%+v %+v %v", re, re.Divergence, err)
			}
		})
	}
}
