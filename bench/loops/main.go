// Loops scores the watchdog: how many loops it finds, and how often it is wrong.
//
//	go run ./bench/loops              runs that are made here, of many kinds
//	go run ./bench/loops -dir DIR     recorded runs of real agents, too
//
// DIR holds public trajectories in any of the formats in read.go. Their labels come
// from the runs, and not from the rules of the watchdog:
//
//   - normal: the run ended by itself and was successful;
//   - loop: it was not, and it went in circles at its end. Its last 6 calls were at most
//     2 different ones, or 5 of its last 8 calls were exact repeats of earlier ones.
//     A call is compared with its result;
//   - other: it failed otherwise.
//
// A recorded run cannot react to a warning. So what smart ends here is the most that
// it would end.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
)

func main() {
	dir := flag.String("dir", "", "directory of recorded runs")
	repeat := flag.Int("repeat", 3, "the watchdog's repeat")
	flag.Parse()
	err := printScores(os.Stdout, "made", synthetic(), *repeat)
	if *dir != "" {
		runs, unread := readDir(*dir)
		for _, f := range unread {
			fmt.Printf("not read: %v\n", f)
		}
		fmt.Println()
		err = errors.Join(err, printScores(os.Stdout, "recorded", runs, *repeat))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A run is what an agent did, in order.
type run struct {
	kind  string // where it is from, or how it was made
	ended bool   // by itself, and successfully
	label string // normal, loop or other; empty: it follows from the calls
	calls []call
}

// A call is a call with its result, or an answer of a model without a tool call.
type call struct {
	name, args, result string
	failed             bool
	said               bool // an answer; args is what is new in the request
	effect             abi.Effect
}

// labeled returns the label of a run.
func (r *run) labeled() string {
	switch {
	case r.label != "":
		return r.label
	case r.ended:
		return "normal"
	case len(r.calls) >= 6 && different(r.calls[len(r.calls)-6:]) <= 2, repeats(r.calls, 8) >= 5:
		return "loop"
	}
	return "other"
}

func different(calls []call) int {
	seen := map[call]bool{}
	for _, c := range calls {
		seen[c] = true
	}
	return len(seen)
}

// repeats counts the calls among the last that occur earlier in the run.
func repeats(calls []call, last int) (n int) {
	seen := map[call]bool{}
	for i, c := range calls {
		if seen[c] && i >= len(calls)-last {
			n++
		}
		seen[c] = true
	}
	return n
}

// watch feeds a run to the watchdog as the kernel does. It returns the call of the
// first warning and the call at which the watchdog ended the run; 0: neither.
func (r *run) watch(cfg abi.Watchdog) (warned, ended int) {
	var w process.Watchdog
	for i, c := range r.calls {
		outcome := abi.OK
		if c.failed {
			outcome = abi.Failed
		}
		s := process.WatchedCall{Call: uint64(i + 1), Name: c.name, Key: process.KeyOf("tool", []byte(c.name+"\x00"+c.args)), Failed: c.failed,
			Result: process.KeyOf(string(outcome), []byte(c.result)), Effect: cmp.Or(c.effect, abi.Irreversible)}
		if c.said { // the request grows with the conversation
			s.Said, s.Key, s.Result = true, process.KeyOf(c.name, fmt.Append(nil, i)), process.KeyOf(c.args, []byte(c.result))
		}
		warning, end := w.Judge(cfg, &s)
		w.Add(s)
		if warning != nil {
			w.Warn()
			warned = cmp.Or(warned, i+1)
		}
		if end != nil {
			return warned, i + 1
		}
	}
	return warned, 0
}

// A score sums the verdicts on the runs of one kind.
type score struct{ runs, warned, ended, at int }

func (s *score) add(warned, ended int) {
	s.runs++
	if warned > 0 {
		s.warned++
	}
	if ended > 0 {
		s.ended++
	}
	if found := cmp.Or(warned, ended); found > 0 {
		s.at += found
	}
}

// found is how many runs had a warning or were ended.
func (s *score) found() int { return max(s.warned, s.ended) }

func (s *score) mean() string {
	if s.found() == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(s.at)/float64(s.found()))
}

// printScores writes a table of one row for each label and kind, and the sums.
func printScores(out io.Writer, what string, runs []run, repeat int) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "LABEL\tKIND (%s)\tRUNS\tSMART FOUND\tAT CALL\tENDED\tSTRICT ENDED\tAT CALL\n", what)
	type key struct{ label, kind string }
	smart, strict := map[key]*score{}, map[key]*score{}
	var keys []key
	for i := range runs {
		for _, k := range []key{{runs[i].labeled(), runs[i].kind}, {runs[i].labeled(), "all"}} {
			if smart[k] == nil {
				smart[k], strict[k] = new(score), new(score)
				keys = append(keys, k)
			}
			smart[k].add(runs[i].watch(abi.Watchdog{Repeat: repeat}))
			strict[k].add(runs[i].watch(abi.Watchdog{Profile: "strict", Repeat: repeat}))
		}
	}
	slices.SortStableFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.label, b.label), cmp.Compare(order(a.kind), order(b.kind)))
	})
	for _, k := range keys {
		a, b := smart[k], strict[k]
		fmt.Fprintf(t, "%s\t%s\t%d\t%d (%.1f %%)\t%s\t%d\t%d (%.1f %%)\t%s\n", k.label, k.kind, a.runs, a.found(), share(a.found(), a.runs), a.mean(), a.ended, b.ended, share(b.ended, b.runs), b.mean())
	}
	return t.Flush()
}

// order puts the sum of a label last.
func order(kind string) int {
	if kind == "all" {
		return 1
	}
	return 0
}

func share(n, of int) float64 { return 100 * float64(n) / float64(max(1, of)) }
