package config

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/tools"
)

// position begins every error about a file.
var position = regexp.MustCompile(`^agent\.yaml(:\d+:\d+)?: `)

// FuzzAgentFile reads any bytes as an agent file. Nothing panics, an error says
// where it is, and what is taken makes sense as a whole: its tools can be made,
// recorded and read again.
func FuzzAgentFile(f *testing.F) {
	seeds := []string{
		"model: script:x.yaml\n", "model: [\n", "a: &a [*a]\nmodel: x\n", "model: x\nlimits: {money: 1e400, wall: -1s}\n",
		"model: x\nwatchdog: {profile: off, repeat: 1}\n", "model: x\ntools: [{name: spawn}, {name: spawn}]\n", "? {}\n: x\n", "\xff\xfe", "--- a\n--- b\n",
		"model: x\ntools: [{name: t, command: [cat], schema: {type: object, properties: {a: {$ref: '#'}}}}]\n",
	}
	if whole, err := os.ReadFile("testdata/agent.yaml"); err == nil {
		seeds = append(seeds, string(whole))
	} else {
		f.Fatal(err)
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseAgent("agent.yaml", data)
		if err != nil {
			if !position.MatchString(err.Error()) {
				t.Fatalf("no position: %v", err)
			}
			return
		}
		if a.Program.Model == "" || a.Priority < 0 || a.Priority > abi.MaxPriority {
			t.Fatalf("%+v", a)
		}
		for _, s := range a.Program.Tools {
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			var again abi.ToolSpec
			if err := json.Unmarshal(b, &again); err != nil {
				t.Fatalf("%s cannot be read again: %v", b, err)
			}
			if err := tools.Validate(&again); err != nil {
				t.Fatalf("%s was taken, and is not again: %v", b, err)
			}
		}
	})
}
