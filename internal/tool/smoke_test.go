package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	p := &Pool{}
	defer p.Close()
	r := Runner{Supervisor: []string{"/proc/self/exe", "supervise"}, Pool: p}
	for _, cmd := range [][]string{{"cat"}, {"sh", "-c", "echo hi; echo err >&2; exit 3"}, {"sh", "-c", "setsid sleep 100 & echo ok"}, {"sleep", "10"}, {"env"}, {"nope"}, {"sh", "-c", "kill -9 $PPID; sleep 100"}, {"sh", "-c", "kill -9 $$"}, {"yes"}, {"sh", "-c", "tr '\\0' '\\n' < /proc/$PPID/environ"}} {
		tl, err := Command(Spec{Name: "x", Command: cmd, Timeout: 500 * time.Millisecond}, r)
		if err != nil {
			t.Fatal(err)
		}
		out := tl.Run(context.Background(), Input{Args: json.RawMessage(`{"a": 1}`), MaxOutput: 1000})
		v := string(out.Value)
		if len(v) > 300 {
			v = v[:300]
		}
		fmt.Printf("%v => %s err=%+v bytes=%d cpu=%s wall=%s\n", cmd, v, out.Err, out.Bytes, out.CPU, out.Wall)
	}
}
func BenchmarkTrue(b *testing.B) {
	p := &Pool{}
	defer p.Close()
	r := Runner{Supervisor: []string{"/proc/self/exe", "supervise"}, Pool: p}
	tl, _ := Command(Spec{Name: "x", Command: []string{"true"}}, r)
	for b.Loop() {
		if out := tl.Run(context.Background(), Input{Args: json.RawMessage(`{"a": 1}`)}); out.Err != nil {
			b.Fatal(out.Err)
		}
	}
}
func BenchmarkTrueCold(b *testing.B) {
	r := Runner{Supervisor: []string{"/proc/self/exe", "supervise"}}
	tl, _ := Command(Spec{Name: "x", Command: []string{"true"}}, r)
	for b.Loop() {
		if out := tl.Run(context.Background(), Input{Args: json.RawMessage(`{"a": 1}`)}); out.Err != nil {
			b.Fatal(out.Err)
		}
	}
}
func BenchmarkTrueBare(b *testing.B) {
	r := Runner{AcceptWeakKill: true}
	tl, _ := Command(Spec{Name: "x", Command: []string{"true"}}, r)
	for b.Loop() {
		if out := tl.Run(context.Background(), Input{Args: json.RawMessage(`{"a": 1}`)}); out.Err != nil {
			b.Fatal(out.Err)
		}
	}
}
