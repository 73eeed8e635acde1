package kernel

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kern-run/kern/abi"
)

var update = flag.Bool("update", false, "write what the transcripts in testdata should say")

// TestTranscripts plays the scripts in testdata. A script is commands, each
// followed by "----" and its effects: the records in the order of the journal, the
// answers, and the accounts that changed. The flag -update writes the effects, so
// that a change of the kernel is read as a diff of records.
//
//	spawn LIMIT=N...                       a process, with limits
//	call PID N ROW KEY=VALUE...            a call; see deed for the keys
//	account NAME LIMIT=N...                a named account
//	open GATE                              lets calls with gate=GATE return
//	signal PID SIGNAL, decide PID yes|no   from outside
//	sleep DURATION, kill-9, ps
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var after []byte
			synctest.Test(t, func(t *testing.T) { after = playTranscript(t, string(before)) })
			if bytes.Equal(before, after) {
				return
			}
			if *update {
				if err := os.WriteFile(file, after, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s says otherwise now (go test -run TestTranscripts -update writes it):\n%s", file, after)
		})
	}
}

// transcript is a script that is played.
type transcript struct {
	*rig
	tap      *tap              // whose records are printed
	printed  int               // of them
	open     []openCall        // calls without an answer
	accounts map[string]string // as they were printed last
}

type openCall struct {
	pid abi.Pid
	n   uint64
	res <-chan abi.Result
}

func playTranscript(t *testing.T, script string) []byte {
	s := &transcript{rig: newRig(t, Config{}), accounts: make(map[string]string)}
	defer s.halt()
	s.cfg.Rows["tool"] = &Row{Name: "tool", Watch: true, Plan: planDeed, Run: s.run}
	var out strings.Builder
	inOutput := false // of a command; it ends with an empty line
	for line := range strings.Lines(script) {
		switch line = strings.TrimRight(line, "\n"); {
		case line == "":
			inOutput = false
			out.WriteString("\n")
		case inOutput:
		case line[0] == '#':
			out.WriteString(line + "\n")
		default:
			inOutput = true
			out.WriteString(line + "\n----\n")
			if err := s.command(splitWords(line)); err != nil {
				fmt.Fprintf(&out, "error: %v\n", err)
			}
			s.print(&out)
		}
	}
	return []byte(out.String())
}

// splitWords splits at spaces that are not in double quotes, and drops the quotes.
func splitWords(line string) (words []string) {
	quoted := false
	for _, w := range strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	}) {
		words = append(words, strings.ReplaceAll(w, `"`, ""))
	}
	return words
}

func (s *transcript) command(words []string) error {
	ctx := s.t.Context()
	pid := func() abi.Pid { n, _ := strconv.Atoi(words[1]); return abi.Pid(n) }
	switch words[0] {
	case "spawn":
		spawn := Spawning{Spawn: abi.Spawn{Rows: append(slices.Clone(everyRow), "tool"), Limits: readLimits(words[1:])}}
		for _, w := range words[1:] {
			switch key, value, _ := strings.Cut(w, "="); key {
			case "name":
				spawn.Name = value
			case "account":
				spawn.Account = value
			case "task":
				spawn.Task = []byte(value)
			}
		}
		s.spawn(spawn)
	case "call":
		n, _ := strconv.ParseUint(words[2], 10, 64)
		c := abi.Call{Pid: pid(), N: n, Row: words[3]}
		d := readDeed(words[4:])
		for _, w := range words[4:] {
			if id, ok := strings.CutPrefix(w, "answers="); ok {
				c.For = id
			}
		}
		c.Args = d.json()
		s.open = append(s.open, openCall{c.Pid, n, s.startCall(c)})
	case "account":
		return s.SetAccount(ctx, words[1], abi.Edit{Limits: readLimits(words[2:]), By: "test"})
	case "open":
		s.let(words[1])
	case "signal":
		return s.Signal(ctx, pid(), abi.Signal(words[2]), "test")
	case "decide":
		return s.Decide(ctx, pid(), 0, words[2] == "yes", "test", strings.Join(words[3:], " "))
	case "sleep":
		time.Sleep(howLong(words[1])) // the clock of the bubble
	case "kill-9":
		s.crash()
		s.open = nil
		s.Resume()
	case "ps":
	default:
		return fmt.Errorf("no command %q", words[0])
	}
	return nil
}

func readLimits(words []string) (l abi.Limits) {
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		if u, ok := abi.UnitOf(name); ok {
			n, err := abi.ParseUnit(u, value)
			if err != nil {
				panic(err)
			}
			l.Set(u, n)
		}
	}
	return l
}

// readDeed reads the arguments of a call: key=value, where use and reserve have
// values such as money:0.01,tokens:100.
func readDeed(words []string) (d deed) {
	fields := make(map[string]any)
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "answers":
		case "use", "reserve":
			usage := make(map[string]string)
			for pair := range strings.SplitSeq(value, ",") {
				if unit, n, ok := strings.Cut(pair, ":"); ok {
					usage[unit] = n
				}
			}
			fields[key] = usage
		case "child":
			fields[key] = abi.Spawn{Limits: readLimits(strings.Split(strings.ReplaceAll(value, ":", "="), ","))}
		case "pid", "times", "attempts", "state":
			fields[key], _ = strconv.Atoi(value)
		case "quiet", "rolled", "last", "firm":
			fields[key] = true
		default:
			fields[key] = value
		}
	}
	b, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		panic(err)
	}
	return d
}

// print writes what the last command led to: records, answers, what is open, and
// the accounts that changed.
func (s *transcript) print(out *strings.Builder) {
	synctest.Wait()
	if s.tap != s.rig.tap {
		s.tap, s.printed = s.rig.tap, 0
	}
	s.tap.mu.Lock()
	for ; s.printed < len(s.tap.order); s.printed++ {
		r := &s.tap.order[s.printed]
		fmt.Fprintf(out, "  record %d.%d %s\n", r.Pid, r.N, describeRecord(r))
	}
	s.tap.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(c openCall) bool {
		select {
		case res := <-c.res:
			fmt.Fprintf(out, "  answer %d.%d %s\n", c.pid, c.n, describeResult(res))
			return true
		default:
			return false
		}
	})
	for _, i := range s.List() {
		if i.State == abi.Running || len(i.Waits) > 0 {
			fmt.Fprintf(out, "  process %d is %s", i.Pid, i.State)
			for _, what := range i.Waits {
				fmt.Fprintf(out, ", a call waits for %s", what)
			}
			out.WriteString("\n")
		}
		s.printAccount(out, fmt.Sprintf("of process %d", i.Pid), i.Limits, i.Used, i.Reserved, i.Doubt)
	}
	for _, a := range s.Accounts() {
		s.printAccount(out, a.Name, a.Limits, a.Used, a.Reserved, abi.Usage{})
	}
}

// printAccount writes an account if it is not as it was printed last.
func (s *transcript) printAccount(out *strings.Builder, name string, l abi.Limits, used, reserved, doubt abi.Usage) {
	var parts []string
	for u := range abi.Units {
		limit, limited := l.Get(u)
		if used[u] == 0 && reserved[u] == 0 {
			continue
		}
		text := fmt.Sprintf("%s %s used", u, abi.FormatUnit(u, used[u]))
		if n := reserved[u] - doubt[u]; n > 0 {
			text += ", " + abi.FormatUnit(u, n) + " reserved"
		}
		if doubt[u] > 0 {
			text += ", " + abi.FormatUnit(u, doubt[u]) + " in doubt"
		}
		if limited {
			text += " of " + abi.FormatUnit(u, limit)
		}
		parts = append(parts, text)
	}
	if line := strings.Join(parts, "; "); line != s.accounts[name] {
		s.accounts[name] = line
		fmt.Fprintf(out, "  account %s: %s\n", name, line)
	}
}

func describeResult(r abi.Result) string {
	text := string(r.Outcome)
	switch {
	case r.Err != nil:
		text += fmt.Sprintf(" %s: %s", r.Err.Code, r.Err.Message)
	case len(r.Value) > 0:
		text += " " + string(r.Value)
	}
	if r.Warning != nil {
		text += fmt.Sprintf(" (warning %s: %s)", r.Warning.Code, r.Warning.Message)
	}
	return text
}

// describeRecord writes a record on one line, without what is always the same.
func describeRecord(r *abi.Record) string {
	text := r.Kind.String()
	add := func(format string, args ...any) { text += " " + fmt.Sprintf(format, args...) }
	if r.Call != 0 {
		add("call %d", r.Call)
	}
	if sp := r.Spawn; sp != nil {
		if sp.Parent != 0 {
			add("child of %d", sp.Parent)
		}
		add("%q", sp.Name)
		if !sp.Limits.IsZero() {
			add("limits %s", jsonText(sp.Limits))
		}
	}
	if in := r.Intent; in != nil {
		add("row %s", in.Row)
		if in.Tool != "" {
			add("tool %s", in.Tool)
		}
		add("%s", in.Effect)
		if in.Attempt > 1 {
			add("attempt %d", in.Attempt)
		}
		if in.Reserve != (abi.Usage{}) {
			add("reserve %s", jsonText(in.Reserve))
		}
	}
	if a := r.Answer; a != nil {
		add("%s", a.Outcome)
		if a.Err != nil {
			add("%s", a.Err.Code)
		} else {
			add("%s", a.Value.Bytes)
		}
		if a.Again {
			add("again")
		}
		if a.Usage != (abi.Usage{}) {
			add("usage %s", jsonText(a.Usage))
		}
		if a.Page != nil {
			add("page %s", joinFields(a.Page.Role, a.Page.ID))
		}
		if a.Warning != nil {
			add("warning %s", a.Warning.Code)
		}
		if a.Rolled {
			add("rolled back")
		}
		if a.Took != 0 {
			add("took %d", a.Took)
		}
	}
	if n := r.Note; n != nil {
		if n.From != "" {
			add("from %s", n.From)
		}
		add("%s", joinFields(string(n.Signal), string(n.Body.Bytes)))
		if r.Kind == abi.KindDecided {
			add("yes: %v", n.Yes)
		}
	}
	if c := r.Change; c != nil {
		add("%s", jsonText(c))
	}
	if x := r.Exit; x != nil {
		add("%s", joinFields(string(x.Exit), x.Reason, string(x.Output.Bytes)))
	}
	return text
}

// joinFields joins the texts that are not empty.
func joinFields(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), " ")
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
