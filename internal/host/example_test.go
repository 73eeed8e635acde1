package host_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
)

// An agent may make two steps. It wants to go on for ever, and is stopped
// before the third.
func ExampleKernel_Run() {
	dir, err := os.MkdirTemp("", "kern")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "replies.yaml")
	if err := os.WriteFile(script, []byte(`
price: {input: 3.00, output: 15.00}
repeat: true
replies:
  - calls: [{tool: add, args: {a: 1, b: 2}}]
    usage: {input: 100, output: 20}
  - calls: [{tool: add, args: {a: 3, b: 4}}]
    usage: {input: 100, output: 20}
`), 0o600); err != nil {
		log.Fatal(err)
	}
	k, err := host.Open(host.Config{Dir: filepath.Join(dir, "data")})
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()

	type pair struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	add := host.Tool("add", "Add two numbers.", func(_ context.Context, in pair) (int, error) {
		fmt.Println("adding", in.A, in.B)
		return in.A + in.B, nil
	})
	r, err := k.Run(context.Background(), host.Agent{
		Model:  "script:" + script,
		Tools:  []host.Callable{add.As(abi.Pure)},
		Limits: host.Limits{abi.Steps: 2},
	}, "add for ever")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Exit, r.Reason, r.Code, "after", r.Steps, "steps, for", r.Usage.Money, "dollars")
	// Output:
	// adding 1 2
	// adding 3 4
	// limit steps LIMIT_STEPS after 2 steps, for 0.0012 dollars
}
