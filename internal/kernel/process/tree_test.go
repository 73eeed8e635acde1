package process

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kern-run/kern/abi"
)

// plain is a roll as a list that is searched.
type plain []struct {
	pid, parent abi.Pid
	end, turn   int64 // of its end, 0: it lives; and the how manieth that was
}

func (p plain) find(pid abi.Pid) int {
	for i := range p {
		if p[i].pid == pid {
			return i
		}
	}
	return -1
}

func (p plain) children(pid abi.Pid) (all []abi.Pid) {
	for _, e := range p {
		if e.parent == pid {
			all = append(all, e.pid)
		}
	}
	return all
}

// recent says whether a process is shown: it lives, fewer than n ended after it, a
// living parent has fewer than n younger children, or one below it is shown.
func (p plain) recent(pid abi.Pid, n int) bool {
	e := p[p.find(pid)]
	later := 0
	for _, o := range p {
		if o.end > e.end || o.end == e.end && o.turn > e.turn {
			later++
		}
	}
	if e.end == 0 || later < n {
		return true
	}
	if up := p.find(e.parent); up >= 0 && p[up].end == 0 {
		if children := p.children(e.parent); len(children)-slices.Index(children, pid) <= n {
			return true
		}
	}
	return slices.ContainsFunc(p.children(pid), func(child abi.Pid) bool { return p.recent(child, n) })
}

// TestTree holds random rolls against lists that are searched.
//
// Mutants that die here: what ended unsorted is not sorted, who is above is not
// shown, the oldest children are shown, the children of the ended are.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Tree
		var p plain
		for range rapid.IntRange(0, 30).Draw(t, "births") {
			pid, parent := abi.Pid(1), abi.Pid(0)
			if len(p) > 0 {
				pid = p[len(p)-1].pid + abi.Pid(rapid.IntRange(1, 3).Draw(t, "gap"))
				parent = rapid.SampledFrom(append(p.children(0), 0, p[len(p)-1].pid)).Draw(t, "parent")
			}
			p = append(p, plain{{pid: pid, parent: parent}}...)
			r.Add(pid, parent)
		}
		for turn := range int64(len(p)) {
			if i := rapid.IntRange(0, len(p)-1).Draw(t, "exits"); p[i].end == 0 {
				p[i].end, p[i].turn = rapid.Int64Range(1, 20).Draw(t, "at"), turn
				r.AddExit(p[i].pid, p[i].end)
			}
		}
		n := rapid.IntRange(0, 4).Draw(t, "n")
		var living, want, below []abi.Pid
		for _, e := range p {
			if e.end == 0 {
				living = append(living, e.pid)
			}
			if p.recent(e.pid, n) {
				want = append(want, e.pid)
			}
			if !slices.Equal(r.Children(e.pid), p.children(e.pid)) {
				t.Fatalf("the children of %d: %v of %+v", e.pid, r.Children(e.pid), p)
			}
		}
		if got, more := r.Recent(living, n); !slices.Equal(got, want) || more != len(p)-len(want) || r.Living() != len(living) {
			t.Fatalf("the last %d of %+v: %v and %d more, %d live; want %v", n, p, got, more, r.Living(), want)
		}
		for pid := range abi.Pid(5) {
			if got := r.After(pid, n); len(got) > n || !slices.Equal(got, pidsAfter(p, pid, n)) {
				t.Fatalf("%d after %d of %+v: %v", n, pid, p, got)
			}
		}
		for i := 0; len(p) > 0 && i < len(p.children(p[0].pid)); i++ {
			below = append(below, p.children(p[0].pid)[i])
		}
		for i := 0; i < len(below); i++ {
			below = append(below, p.children(below[i])...)
		}
		if len(p) > 0 && !slices.Equal(r.Descendants(p[0].pid), below) {
			t.Fatalf("below the first of %+v: %v", p, r.Descendants(p[0].pid))
		}
	})
}

func pidsAfter(p plain, pid abi.Pid, n int) (all []abi.Pid) {
	for _, e := range p {
		if e.pid > pid && len(all) < n {
			all = append(all, e.pid)
		}
	}
	return all
}
