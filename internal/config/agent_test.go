package config

import (
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
)

// frozen is every key an agent file may have.
const frozen = `
name: writer
model: script:replies.yaml
system: "You are ..."
priority: 10
limits: {money: 1.00, steps: 20, tokens: 200000, input_tokens: 150000, output_tokens: 50000, model_calls: 50, tool_calls: 50, wall: 10m, depth: 3, children: 10, context: 100000, output_bytes: 1MiB}
watchdog: {profile: smart, repeat: 3}
tools:
  - name: echo
    description: "Echo the text"
    command: [cat]
    schema: {type: object, properties: {text: {type: string}}, required: [text], additionalProperties: false}
    result: {type: object}
    effect: pure
    timeout: 30s
    attempts: 1
    cost: 0.01
    approval: false
`

func TestFrozenFile(t *testing.T) {
	f, err := ParseAgent("agent.yaml", []byte(frozen))
	if err != nil {
		t.Fatal(err)
	}
	want := map[abi.Unit]int64{abi.Money: 1_000_000_000, abi.Steps: 20, abi.Tokens: 200_000, abi.InputTokens: 150_000, abi.OutputTokens: 50_000,
		abi.ModelCalls: 50, abi.ToolCalls: 50, abi.Wall: int64(10 * time.Minute), abi.Depth: 3, abi.Children: 10, abi.Context: 100_000, abi.OutputBytes: 1 << 20}
	n := 0
	f.Limits.Each(func(u abi.Unit, v int64) {
		n++
		if want[u] != v {
			t.Errorf("%s is %d, want %d", u, v, want[u])
		}
	})
	if n != len(want) || len(f.Program.Tools) != 1 || f.Program.Tools[0].Cost != 10_000_000 || f.Program.Tools[0].Effect != abi.Pure || f.Program.Tools[0].Timeout != 30*time.Second {
		t.Errorf("%d limits, %+v", n, f)
	}
	if f.Program.Name != "writer" || f.Program.Model != "script:replies.yaml" || f.Priority != 10 || f.Watchdog != (abi.Watchdog{Profile: "smart", Repeat: 3}) {
		t.Errorf("%+v", f)
	}
}

// TestBareFile holds what is left out: no limit, the usual priority, and the
// word off, which some YAML takes for false.
func TestBareFile(t *testing.T) {
	f, err := ParseAgent("agent.yaml", []byte("model: script:x\nwatchdog: {profile: off}\nlimits: {money: 0}\n"))
	if err != nil {
		t.Fatal(err)
	}
	money, set := f.Limits.Get(abi.Money)
	_, steps := f.Limits.Get(abi.Steps)
	if f.Priority != abi.DefaultPriority || f.Watchdog.Profile != "off" || !set || money != 0 || steps {
		t.Errorf("%+v", f)
	}
}

func TestFileRefuses(t *testing.T) {
	for data, want := range map[string]string{
		"model: script:x\nstpes: 3":                                                                 `agent.yaml:2:1: unknown key "stpes" in an agent file, expected name, model`,
		"name: x":                                                                                   "agent.yaml:1:5: the key model is missing, expected script:FILE",
		"model: script:x\nlimits: {stpes: 3}":                                                       `agent.yaml:2:10: unknown key "stpes" in limits, expected money, steps`,
		"model: script:x\nlimits: {cpu: 3s}":                                                        `unknown key "cpu" in limits`,
		"model: script:x\nlimits: {money: 0.0000000001}":                                            "agent.yaml:2:17: money:",
		"model: script:x\nlimits: {money: -1}":                                                      "agent.yaml:2:17: money:",
		"model: script:x\nlimits: {wall: 10}":                                                       "agent.yaml:2:16: wall: \"10\": expected a duration",
		"model: script:x\nlimits: {output_bytes: 1MB}":                                              "expected bytes such as 4096, 64KiB or 1MiB",
		"model: script:x\npriority: 100":                                                            "agent.yaml:2:11: priority is 100, expected 0 (the most urgent) to 99",
		"model: script:x\nwatchdog: {profile: loud}":                                                `profile is "loud", expected smart, strict or off`,
		"model: script:x\nwatchdog: {repeat: 1}":                                                    "repeat is 1, expected 2 or more",
		"model: script:x\ntools: [{name: nothing}]":                                                 `agent.yaml:2:9: the tool "nothing" has no command`,
		"model: script:x\ntools: [{name: a, command: [cat]}, {name: a, command: [cat]}]":            `the tool "a" is there already`,
		"model: script:x\ntools: [{name: spawn, command: [cat]}]":                                   `the tool "spawn" is there already`,
		"model: script:x\ntools: [{name: a, command: [cat], effect: sometimes}]":                    "expected one of pure",
		"model: script:x\ntools: [{name: a, command: [cat], attempts: 3}]":                          "may not be run twice",
		"model: script:x\ntools: [{name: a, command: [cat], effect: compensable}]":                  "agent.yaml:2:9: tool \"a\": undo: none; expected the tool",
		"model: script:x\ntools: [{name: a, command: [cat], undo: {tool: a}}]":                      "because the effect is irreversible",
		"model: script:x\ntools: [{name: a, command: [cat], effect: compensable, undo: {tool: b}}]": `agent.yaml:2:9: tool "a": undo: there is no tool "b"`,
		"model: script:x\nworkspace: {dir: d, view: layer}":                                         `agent.yaml:2:27: view is "layer", expected one of auto, overlay, copy`,
		"model: script:x\nworkspace: {view: copy}":                                                  "the key dir is missing",
		"model: script:x\nworkspace: {dir: d, bytes: many}":                                         "expected a size such as 10MiB",
		"model: script:x\ninvariants: [{paths: a.json}]":                                            "expected either check or command",
		"model: script:x\ninvariants: [{paths: a.json, check: xml}]":                                `check is "xml", expected one of json, csv, utf8, yaml`,
		"model: script:x\ninvariants: [{paths: ../a.json, check: json}]":                            "expected a pattern relative to the workspace",
		"model: script:x\nbuiltin: fs.read":                                                         `agent.yaml:2:10: builtin is "fs.read", expected a list`,
		"model: script:x\ntools: [{name: a, command: [cat], schema: {type: objekt}}]":               "agent.yaml:2:9: tool \"a\": schema",
		"model: script:x\ntools: [{name: a, command: [cat], cost: free}]":                           "cost: money",
		"model: script:x\ntools: [{name: a, command: [cat], timeout: soon}]":                        "expected a duration",
	} {
		if _, err := ParseAgent("agent.yaml", []byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", data, err, want)
		}
	}
}
