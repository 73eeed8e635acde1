package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// readDir reads every file below dir, and returns the runs that it found and an
// error for each file in which it found none. A run with less than two calls says
// nothing about loops, and is left out. The formats:
//
//   - result files of tau-bench: a list of objects with traj and reward;
//   - .traj files of SWE-agent: an object with trajectory and info;
//   - trajectories of mini-swe-agent: an object with messages and info;
//   - logs, texts and notebooks of ReAct and Reflexion: lines "Action 3: ..." and
//     "Observation 3: ...", with the outcome at the end of each run.
func readDir(dir string) (runs []run, unread []error) {
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found, err := readFile(name)
		if err != nil {
			unread = append(unread, fmt.Errorf("%s: %w", name, err))
		}
		for _, r := range found {
			if len(r.calls) >= 2 {
				runs = append(runs, r)
			}
		}
		return nil
	})
	if err != nil {
		unread = append(unread, err)
	}
	return runs, unread
}

var errFormat = errors.New("expected a result of tau-bench, a trajectory of SWE-agent or mini-swe-agent, or a log of ReAct or Reflexion")

func readFile(name string) ([]run, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var list []tauRun
	if json.Unmarshal(b, &list) == nil && len(list) > 0 && list[0].Traj != nil {
		return readTau(list), nil
	}
	var one struct {
		Trajectory []step
		Messages   []message
		Info       info
		Cells      []struct{ Outputs []output }
	}
	if json.Unmarshal(b, &one) != nil {
		return readText(string(b))
	}
	switch {
	case len(one.Trajectory) > 0:
		r := run{kind: "SWE-agent", ended: one.Info.succeeded()}
		for _, s := range one.Trajectory {
			r.calls = append(r.calls, call{name: "shell", args: strings.TrimSpace(s.Action), result: s.Observation})
		}
		return []run{r}, nil
	case len(one.Messages) > 0:
		return []run{{kind: "mini-swe-agent", ended: one.Info.succeeded(), calls: callsOf(one.Messages)}}, nil
	case len(one.Cells) > 0:
		var text strings.Builder
		for _, c := range one.Cells {
			for _, o := range c.Outputs {
				text.WriteString(o.all())
			}
		}
		return readText(text.String())
	}
	return nil, errFormat
}

// A tauRun is a run in a result file of tau-bench.
type tauRun struct {
	Reward float64
	Traj   []message
}

func readTau(list []tauRun) (runs []run) {
	for _, t := range list {
		runs = append(runs, run{kind: "tau-bench", ended: t.Reward >= 1, calls: callsOf(t.Traj)})
	}
	return runs
}

// step is a call of SWE-agent.
type step struct{ Action, Observation string }

// info is how a run of SWE-agent or mini-swe-agent ended. Resolved is what the
// evaluation said, if it was written into the file.
type info struct {
	ExitStatus string `json:"exit_status"`
	Resolved   *bool
}

func (i *info) succeeded() bool {
	return strings.EqualFold(i.ExitStatus, "submitted") && (i.Resolved == nil || *i.Resolved)
}

// output is what a cell of a notebook printed.
type output struct {
	Text json.RawMessage // a text, or a list of lines
}

func (o *output) all() string {
	var lines []string
	if json.Unmarshal(o.Text, &lines) == nil {
		return strings.Join(lines, "")
	}
	var s string
	_ = json.Unmarshal(o.Text, &s) // any other output is a picture or a table
	return s
}

// A message is one message of a chat.
type message struct {
	Role    string
	Content json.RawMessage // a text, or a list of parts
	ID      string          `json:"tool_call_id"`
	Calls   []struct {
		ID       string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

func (m *message) text() string {
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s
	}
	return string(m.Content)
}

// command finds the command in a message of an agent that writes its calls as text.
var command = regexp.MustCompile("(?s)```[a-z_]*\\n(.*?)\\n?```")

// callsOf returns the calls of a chat: tool calls with the results that name them, or
// commands in the text with the next message as their result.
func callsOf(msgs []message) (calls []call) {
	open := map[string]int{}
	for i, m := range msgs {
		switch {
		case m.Role == "tool" && open[m.ID] > 0:
			calls[open[m.ID]-1].result = m.text()
		case m.Role != "assistant":
		case len(m.Calls) > 0:
			for _, c := range m.Calls {
				calls = append(calls, call{name: c.Function.Name, args: canonical(c.Function.Arguments)})
				open[c.ID] = len(calls)
			}
		default:
			if c := command.FindStringSubmatch(m.text()); c != nil && i+1 < len(msgs) && msgs[i+1].Role == "user" {
				calls = append(calls, call{name: "shell", args: c[1], result: msgs[i+1].text()})
			}
		}
	}
	return calls
}

// canonical writes arguments as the kernel compares them.
func canonical(args string) string {
	var v any
	if json.Unmarshal([]byte(args), &v) != nil {
		return args
	}
	b, _ := json.Marshal(v) // it was JSON
	return string(b)
}

// The lines of a ReAct log.
var (
	actionLine  = regexp.MustCompile(`^>? ?(?:Action|Act)(?: (\d+))?: ?(.*)$`)
	resultLine  = regexp.MustCompile(`^(?:Observation|Obs)(?: \d+)?: ?(.*)$`)
	otherLine   = regexp.MustCompile(`^>? ?(?:Thought(?: \d+)?:|Think(?: \d+)?:|Question:|Claim:|Correct answer:|-{5,}|#{5,})`)
	beginLine   = regexp.MustCompile(`^(?:Question:|Claim:|-{10,}$|WebShop|Instruction:)`)
	sectionLine = regexp.MustCompile(`BEGIN (CORRECT|INCORRECT|HALTED|SUCCESSFUL|FAILED)`)
	outcomeLine = regexp.MustCompile(`'(?:reward|em)': ?(True|1|1\.0)\b|Your score \(min 0\.0, max 1\.0\): ?1\.0\b|Answer is CORRECT|STATUS: OK`)
)

// readText reads a ReAct log. A run begins at a line that names its task, or at an
// action with a number that is not higher than the one before.
func readText(text string) (runs []run, err error) {
	var r run
	section, number := "", 0
	var result *string // the observation that the present line continues
	end := func() {
		r.kind, r.ended = "ReAct", r.ended || section == "CORRECT" || section == "SUCCESSFUL"
		if len(r.calls) > 0 {
			runs = append(runs, r)
		}
		r, number, result = run{}, 0, nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if s := sectionLine.FindStringSubmatch(line); s != nil {
			end()
			section = s[1]
			continue
		}
		if beginLine.MatchString(line) && len(r.calls) > 0 {
			end()
		}
		if a := actionLine.FindStringSubmatch(line); a != nil {
			var n int
			if _, err := fmt.Sscan(a[1], &n); err == nil && n <= number {
				end()
			}
			number = n
			r.calls = append(r.calls, call{name: "act", args: a[2]})
			result = nil
		} else if o := resultLine.FindStringSubmatch(line); o != nil && len(r.calls) > 0 {
			result = &r.calls[len(r.calls)-1].result
			*result = o[1]
		} else if otherLine.MatchString(line) {
			result = nil
		} else if result != nil {
			*result += "\n" + line
		}
		r.ended = r.ended || len(r.calls) > 0 && outcomeLine.MatchString(line)
	}
	end()
	if len(runs) == 0 {
		return nil, errFormat
	}
	return runs, nil
}
