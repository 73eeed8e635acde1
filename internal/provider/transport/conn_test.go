package transport

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// posted is a line to a handler, by the client that all lines share.
func posted(t *testing.T, h http.HandlerFunc) func(body string) *http.Response {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { CloseIdle(); s.Close() })
	l := Line{Base: s.URL, Sign: bearer, Client: Client()}
	return func(body string) *http.Response {
		t.Helper()
		resp, err := l.Post(t.Context(), "/", http.Header{}, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
}

// TestHangUp tells the provider in the middle of an answer: it stops, and all
// that it wrote until then comes. The next request is not harmed.
//
// Mutants that die here: a provider that is not told, a line that was hung up
// and is used again.
func TestHangUp(t *testing.T) {
	stopped := make(chan int, 1)
	post := posted(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if string(b) != "talk" {
			_, _ = w.Write(b)
			return
		}
		for n := 0; ; n++ {
			if r.Context().Err() != nil {
				stopped <- n
				return
			}
			_, _ = io.WriteString(w, "word\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	for range 20 {
		resp := post("talk")
		if !HangUp(resp.Body) {
			t.Fatal("it cannot be told")
		}
		b, _ := io.ReadAll(resp.Body)
		if wrote, came := <-stopped, strings.Count(string(b), "\n"); wrote != came {
			t.Errorf("it wrote %d words, and %d came", wrote, came)
		}
		if HangUp(resp.Body) {
			t.Error("hung up twice")
		}
		CloseIdle() // else the next may find the line before its end is seen, and is asked again
		if b, err := io.ReadAll(post("echo").Body); string(b) != "echo" || err != nil {
			t.Errorf("the next request: %q %v", b, err)
		}
	}
}

// TestHangUpLate comes when the line has the next request on it: that one goes
// on.
//
// Mutants that die here: one that does not look whether it was written to.
func TestHangUpLate(t *testing.T) {
	more := make(chan bool)
	post := posted(t, func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); string(b) == "second" {
			_, _ = io.WriteString(w, "a\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, "b\n")
	})
	first := post("first")
	if _, err := io.ReadAll(first.Body); err != nil {
		t.Fatal(err)
	}
	second := post("second")
	if first.Body.(*call).conn != second.Body.(*call).conn {
		t.Fatal("the line was not used again")
	}
	if HangUp(first.Body) {
		t.Error("the line of another request was hung up")
	}
	close(more)
	lines := bufio.NewScanner(second.Body)
	for _, want := range []string{"a", "b"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("%q, want %s: %v", lines.Text(), want, lines.Err())
		}
	}
}

// TestUnread holds an answer back, and sends it: that it has come is known before
// anybody reads it, and not afterwards.
//
// Mutants that die here: one that takes what it looks at.
func TestUnread(t *testing.T) {
	more := make(chan bool)
	post := posted(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "words")
		_ = http.NewResponseController(w).Flush()
		<-more
	})
	resp := post("")
	body, ok := resp.Body.(interface{ Unread() bool })
	if !ok || body.Unread() {
		t.Error("something came before it was sent")
	}
	more <- true
	for end := time.Now().Add(time.Minute); !body.Unread(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
	b := make([]byte, 9)
	if n, err := io.ReadFull(resp.Body, b[:5]); string(b[:n]) != "words" || err != nil || body.Unread() {
		t.Errorf("%q %v, more to read: %v", b[:n], err, body.Unread())
	}
	close(more)
}
