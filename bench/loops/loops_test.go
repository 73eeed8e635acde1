package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestReadDir reads a file of each format, and names the file that it cannot read.
func TestReadDir(t *testing.T) {
	chat := `{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"find","arguments":"{\"b\": 1, \"a\":2}"}},{"id":"b","function":{"name":"find","arguments":"{\"a\":2,\"b\":1}"}}]},
		{"role":"tool","tool_call_id":"b","content":"two"},{"role":"tool","tool_call_id":"a","content":"two"}`
	bash := func(cmd string) string {
		return fmt.Sprintf(`{"role":"assistant","content":%q},{"role":"user","content":"<returncode>0</returncode>"}`, "I look.\n\n```bash\n"+cmd+"\n```")
	}
	react := "Question: who?\nThought 1: I search.\nAction 1: Search[x]\nObservation 1: a text\nof two lines\nThought 2: I know.\nAction 2: Finish[y]\nObservation 2: Episode finished, reward = 1\n"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tau.json":                `[{"reward":1.0,"traj":[` + chat + `]},{"reward":0.0,"traj":[` + chat + `]}]`,
		"deep/demo.traj":          `{"trajectory":[{"action":"ls\n","observation":"a"},{"action":"ls","observation":"a"}],"info":{"exit_status":"submitted"}}`,
		"mini.traj.json":          `{"info":{"exit_status":"Submitted","resolved":false},"messages":[{"role":"system","content":"x"},` + bash("ls") + "," + bash("ls") + `]}`,
		"mini2.json":              `{"info":{"exit_status":"LimitsExceeded"},"messages":[` + chat + `]}`,
		"react.txt":               react + "{'em': True, 'reward': True}\n\n" + react + "{'em': False, 'reward': False}\n",
		"notebook.ipynb":          fmt.Sprintf(`{"cells":[{"outputs":[{"text":[%q,%q]}]}]}`, react, "{'reward': 0}\n"),
		"reflexion.txt":           "-- BEGIN CORRECT AGENTS --\n" + react + "-- BEGIN HALTED AGENTS --\n" + react,
		"webshop.log":             "WebShop\nAction: search[cup]\nObservation: [cup 1]\nAction: click[Buy]\nObservation: Your score (min 0.0, max 1.0): 1.0\n",
		"one call is too few.txt": "Action 1: a\nObservation 1: b\n",
		"not one.bin":             "\x00\x01",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	runs, unread := readDir(dir)
	if len(unread) != 1 || !strings.Contains(unread[0].Error(), "not one.bin") {
		t.Errorf("%v", unread)
	}
	ended := map[string][]bool{}
	for _, r := range runs {
		ended[r.kind] = append(ended[r.kind], r.ended)
		a, b := r.calls[0], r.calls[1]
		if same := r.kind != "ReAct"; (a == b) != same {
			t.Errorf("%s: %+v", r.kind, r.calls)
		}
		if r.kind == "ReAct" && a.args == "Search[x]" && a.result != "a text\nof two lines" {
			t.Errorf("%q", a.result)
		}
	}
	want := "map[ReAct:[false true false true false true] SWE-agent:[true] mini-swe-agent:[false false] tau-bench:[true false]]"
	if got := fmt.Sprint(ended); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestLabels: the label follows from the last calls, and not from the watchdog.
func TestLabels(t *testing.T) {
	for label, r := range map[string]run{
		"normal": {ended: true, calls: rounds(9, same("a", "b"))},
		"loop":   {calls: append(several(20), rounds(3, several(2)...)...)},
		"other":  {calls: append(rounds(9, same("a", "b")), several(20)...)},
	} {
		if got := r.labeled(); got != label {
			t.Errorf("%s, want %s", got, label)
		}
	}
	if r := (run{calls: withNew(rand.New(rand.NewPCG(1, 2)), 5, 3)}); r.labeled() != "loop" {
		t.Error("5 of the last 8 were made before")
	}
}

// TestMade: the watchdog finds most loops that are made here, and no other run.
func TestMade(t *testing.T) {
	var b strings.Builder
	if err := printScores(&b, "made", synthetic(), 3); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if f := strings.Fields(line); f[0] == "normal" && (!strings.Contains(line, " 0 (0.0 %) ") || strings.Count(line, "(0.0 %)") != 2) {
			t.Errorf("a false alarm: %s", line)
		}
		if strings.HasPrefix(line, "loop") && strings.Contains(line, " all ") && !strings.Contains(line, "500 (90.9 %)") {
			t.Errorf("it finds others than it did: %s", line)
		}
	}
}
