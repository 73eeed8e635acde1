package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/kern-run/kern/abi"
)

// each is how many runs are made of a kind.
const each = 50

// synthetic makes loops, and runs that look like loops and are none. Before each
// stands a beginning of another length, and the parts have random sizes.
func synthetic() (runs []run) {
	for _, k := range kinds {
		for i := range each {
			r := rand.New(rand.NewPCG(uint64(i), 42))
			calls := beginning(r, r.IntN(12))
			runs = append(runs, run{kind: k.name, label: k.label, calls: append(calls, k.make(r)...)})
		}
	}
	return runs
}

// beginning is honest work: every call is new.
func beginning(r *rand.Rand, n int) (calls []call) {
	for range n {
		id := fmt.Sprint(r.Uint64())
		calls = append(calls, call{name: "read", args: id, result: "text " + id})
	}
	return calls
}

// kinds are the kinds of runs that are made.
var kinds = []struct {
	name, label string
	make        func(r *rand.Rand) []call
}{
	{"the same call", "loop", func(r *rand.Rand) []call { return rounds(20, same("look", "none")) }},
	{"the same call fails in other words", "loop", func(r *rand.Rand) []call {
		return times(20, func(i int) call {
			return call{name: "build", args: "all", result: fmt.Sprint("error at ", i), failed: true}
		})
	}},
	{"two calls in turn", "loop", func(r *rand.Rand) []call { return rounds(12, same("list", "a b"), same("read", "text")) }},
	{"a cycle of three to eight", "loop", func(r *rand.Rand) []call { return rounds(8, several(3+r.IntN(6))...) }},
	{"a cycle with one new call of four to eight", "loop", func(r *rand.Rand) []call { return withNew(r, 8, 3+r.IntN(5)) }},
	{"a cycle with one new call of three", "loop", func(r *rand.Rand) []call { return withNew(r, 12, 2) }},
	{"rounds of different length", "loop", func(r *rand.Rand) (calls []call) {
		for range 10 {
			calls = append(calls, several(3+r.IntN(3))...)
		}
		return calls
	}},
	{"four calls in no order", "loop", func(r *rand.Rand) []call {
		all := several(4)
		return times(30, func(int) call { return all[r.IntN(len(all))] })
	}},
	{"each call twice, slowly drifting", "loop", func(r *rand.Rand) (calls []call) {
		for i := range 15 {
			c := call{name: "search", args: fmt.Sprint("depth ", i), result: "nothing"}
			calls = append(calls, c, c)
		}
		return calls
	}},
	{"the model gives the same answer", "loop", func(r *rand.Rand) []call { return rounds(20, says("go on", "I am done.")) }},
	{"the model gives two answers in turn", "loop", func(r *rand.Rand) []call {
		return rounds(10, says("go on", "I am done."), says("what is left?", "Nothing."))
	}},

	{"declared polling", "normal", func(r *rand.Rand) []call {
		return append(times(20+r.IntN(90), func(int) call { return call{name: "status", result: "busy", effect: abi.Polling} }), same("status", "ready"))
	}},
	{"polling with a progress", "normal", func(r *rand.Rand) []call {
		return times(60, func(i int) call { return call{name: "status", result: fmt.Sprint(i, " %")} })
	}},
	{"retries that succeed", "normal", func(r *rand.Rand) (calls []call) {
		for i := range 10 {
			fetch := call{name: "fetch", args: fmt.Sprint(i)}
			for range r.IntN(3) {
				fetch.failed, fetch.result = true, "busy"
				calls = append(calls, fetch)
			}
			fetch.failed, fetch.result = false, fmt.Sprint("page ", i)
			calls = append(calls, fetch)
		}
		return calls
	}},
	{"next page, with the same arguments", "normal", func(r *rand.Rand) []call {
		return times(40, func(i int) call { return call{name: "click", args: "next", result: fmt.Sprint("page ", i)} })
	}},
	{"a list, an item, and back", "normal", func(r *rand.Rand) (calls []call) {
		for i := range 15 {
			calls = append(calls, call{name: "open", args: fmt.Sprint("item ", i), result: fmt.Sprint("price ", i)}, same("back", "the list"))
		}
		return calls
	}},
	{"edits and tests that say something new", "normal", func(r *rand.Rand) (calls []call) {
		for i := range 15 {
			calls = append(calls, call{name: "edit", args: fmt.Sprint("line ", i), result: "ok"}, call{name: "test", result: fmt.Sprint(20-i, " failures")})
		}
		return calls
	}},
	{"edits and a test that stays red", "normal", func(r *rand.Rand) (calls []call) {
		for i := range 12 {
			calls = append(calls, call{name: "edit", args: fmt.Sprint("line ", i), result: "ok"}, call{name: "test", result: "1 failure", failed: true})
		}
		return calls
	}},
	{"one question about many texts", "normal", func(r *rand.Rand) (calls []call) {
		for i := range 30 {
			calls = append(calls, says(fmt.Sprint("text ", i), fmt.Sprint("read ", i)), says("is it good?", "yes"))
		}
		return calls
	}},
	{"many texts, one answer", "normal", func(r *rand.Rand) []call {
		return times(60, func(i int) call { return says(fmt.Sprint("text ", i), "yes") })
	}},
}

func same(name, result string) call { return call{name: name, args: "x", result: result} }

func says(to, text string) call { return call{name: "model", args: to, result: text, said: true} }

// several returns n different calls.
func several(n int) []call {
	return times(n, func(i int) call { return call{name: "look", args: fmt.Sprint(i), result: fmt.Sprint("seen ", i)} })
}

// rounds repeats calls.
func rounds(n int, calls ...call) (all []call) {
	for range n {
		all = append(all, calls...)
	}
	return all
}

func times(n int, f func(i int) call) (all []call) {
	for i := range n {
		all = append(all, f(i))
	}
	return all
}

// withNew are rounds of the same calls, with one that is new in each round.
func withNew(r *rand.Rand, n, calls int) (all []call) {
	for range n {
		all = append(append(all, several(calls)...), beginning(r, 1)...)
	}
	return all
}
