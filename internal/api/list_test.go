package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/kern-run/kern/abi"
)

// TestListOfMany: a list that is longer than a page is whole and in order, and one
// that cannot be finished is an error, and no shorter list.
//
// Mutants that die here: the first of a page is left out, a page begins without a
// comma, what cannot be read ends the list.
func TestListOfMany(t *testing.T) {
	for _, c := range []struct {
		many, odd abi.Pid
		lost, bad bool
	}{{0, 0, false, false}, {pageLen - 2, 0, false, false}, {pageLen - 1, 0, false, false}, {3*pageLen + 5, 0, false, false},
		{3 * pageLen, 8, false, true}, {3 * pageLen, 2*pageLen + 50, true, false}} {
		f := newFake()
		f.many, f.odd = c.many, c.odd
		dir, end := serve(t, f)
		cl, err := Dial(t.Context(), SocketOf(dir), "1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		list, err := cl.List(t.Context())
		var e *abi.Error
		if errors.Is(err, ErrLost) != c.lost || errors.As(err, &e) != c.bad || (err != nil) != (c.lost || c.bad) {
			t.Errorf("%+v: %d processes, %v", c, len(list), err)
		}
		if err == nil && (len(list) != int(c.many)+2 || list[0].Pid != 6 || list[c.many+1].Pid != 7+c.many) {
			t.Errorf("%+v: %d processes", c, len(list))
		}
		var b bytes.Buffer
		copied := cl.CopyList(t.Context(), &b)
		if errors.Is(copied, ErrLost) != c.lost || errors.As(copied, &e) != c.bad || (copied != nil) != (c.lost || c.bad) {
			t.Errorf("%+v: copied %v", c, copied)
		}
		var same []Process
		if copied == nil && (json.Unmarshal(b.Bytes(), &same) != nil || len(same) != len(list) || same[len(same)-1].Pid != list[len(list)-1].Pid) {
			t.Errorf("%+v: the copy has %d processes, the list %d", c, len(same), len(list))
		}
		if recent, more, err := cl.Recent(t.Context(), 3); err != nil || len(recent) != 2 || more != 43 {
			t.Errorf("the recent ones: %v and %d more, %v", recent, more, err)
		}
		cl.Close()
		end()
	}
}

// TestPlainList: what stands in texts is not changed, and keys come with where the
// gateway is.
//
// Mutant that dies here: < is written as \u003c.
func TestPlainList(t *testing.T) {
	f := newFake()
	f.info.Name = "<a> & b"
	dir, end := serve(t, f)
	defer end()
	cl, err := Dial(t.Context(), SocketOf(dir), "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for what, list := range map[string]func(context.Context, *Client, *bytes.Buffer) error{
		`"name":"<a> & b"`: func(ctx context.Context, c *Client, b *bytes.Buffer) error { return c.CopyList(ctx, b) },
		`{"gateway":{`:     func(ctx context.Context, c *Client, b *bytes.Buffer) error { return c.Keys.CopyList(ctx, b) },
	} {
		var b bytes.Buffer
		if err := list(t.Context(), cl, &b); err != nil || !json.Valid(b.Bytes()) || !bytes.Contains(b.Bytes(), []byte(what)) {
			t.Errorf("%v: %s, want %s", err, &b, what)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := list(ctx, cl, &b); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end: %v", err)
		}
	}
}

// TestListOfNobody: nothing more is read for a client that went away.
//
// Mutant that dies here: a list that is read to its end all the same.
func TestListOfNobody(t *testing.T) {
	f := newFake()
	f.many = 9 * pageLen
	ctx, leave := context.WithCancel(t.Context())
	leave()
	f.api().Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/v1/processes", nil))
	if f.pages != 1 {
		t.Errorf("%d pages were read", f.pages)
	}
}
