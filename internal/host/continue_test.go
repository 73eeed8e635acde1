package host_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/host"
)

const three = `
replies:
  - calls: [{tool: t, args: {n: 1}}, {tool: t, args: {n: 2}}, {tool: t, args: {n: 3}}]
  - text: fine
  - text: more
`

// TestScenario38Killed kills a process while the second of three calls runs. The process
// that continues it makes the third call alone: the second has begun, and its answer says
// that it was cut off.
func TestScenario38Killed(t *testing.T) {
	for name, deaf := range map[string]bool{"the tool stops": false, "the tool does not stop": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, three)
			k := w.open()
			var mu sync.Mutex
			ran := map[int]int{}
			began, leave := make(chan struct{}), make(chan struct{})
			tool := host.Tool("t", "Act.", func(ctx context.Context, in number) (string, error) {
				mu.Lock()
				ran[in.N]++
				first := ran[in.N] == 1
				mu.Unlock()
				if in.N == 2 && first {
					close(began)
					if deaf {
						<-leave
					} else {
						<-ctx.Done()
					}
				}
				return fmt.Sprint("did ", in.N), nil
			})
			a := host.Agent{Name: "a", Parallel: 1, Tools: []host.Callable{tool}}
			pid := w.spawn(k, a)
			<-began
			if err := k.Signal(t.Context(), pid, abi.Kill, "test"); err != nil {
				t.Fatal(err)
			}
			if r, err := k.Wait(t.Context(), pid); err != nil || r.Exit != abi.ExitKilled {
				t.Fatalf("%+v %v", r, err)
			}
			close(leave)
			next, err := k.Continue(t.Context(), pid, abi.ContinueOptions{}, host.ToolsOf(a)["a"]...)
			if err != nil {
				t.Fatal(err)
			}
			r, err := k.Wait(t.Context(), next)
			if err != nil || r.Exit != abi.ExitDone || r.Output != "fine" {
				t.Errorf("%+v %v", r, err)
			}
			mu.Lock()
			if fmt.Sprint(ran) != "map[1:1 2:1 3:1]" {
				t.Errorf("the calls ran %v", ran)
			}
			mu.Unlock()
			if re, err := k.Replay(t.Context(), next, nil); err != nil || !re.Same {
				t.Errorf("replay: %+v %v", re, err)
			}
		})
	}
}

// TestScenario38Account: the use is charged to the account of the process before, at any
// depth, or to another one.
func TestScenario38Account(t *testing.T) {
	w := newWorld(t, "price: {input: 1.00, output: 1.00}\nrepeat: true\nreplies:\n  - text: fine\n    usage: {input: 1000, output: 0}\n")
	k := w.open()
	for _, name := range []string{"team", "other"} {
		if err := k.SetAccount(t.Context(), name, abi.Edit{Limits: moneyLimit(5)}); err != nil {
			t.Fatal(err)
		}
	}
	r := w.run(k, host.Agent{Name: "a", Account: "team"})
	used := func() (all string) {
		for _, a := range k.Accounts() {
			all += fmt.Sprint(a.Name, " ", abi.FormatMoney(a.Used[abi.Money]), " ")
		}
		return all
	}
	goOn := func(o abi.ContinueOptions) {
		t.Helper()
		o.Say = "and now"
		pid, err := k.Continue(t.Context(), r.Pid, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Wait(t.Context(), pid); err != nil {
			t.Fatal(err)
		}
	}
	goOn(abi.ContinueOptions{})
	other, none := "other", ""
	goOn(abi.ContinueOptions{Account: &other})
	goOn(abi.ContinueOptions{Account: &none})
	if got := used(); got != "other 0.001 team 0.002 " {
		t.Error(got)
	}
	missing := "missing"
	if _, err := k.Continue(t.Context(), r.Pid, abi.ContinueOptions{Say: "x", Account: &missing}); err == nil || !strings.Contains(err.Error(), "no account") {
		t.Error(err)
	}
}

func moneyLimit(dollars int64) (l abi.Limits) {
	l.Set(abi.Money, dollars*host.Dollar)
	return l
}

// TestScenario38Failed continues after errors: of the provider, and of empty answers.
func TestScenario38Failed(t *testing.T) {
	for name, script := range map[string]string{
		"auth":  "replies:\n  - error: auth\n  - text: fine\n",
		"empty": "replies:\n  - text: \"\"\n  - text: \"\"\n  - text: fine\n",
	} {
		w := newWorld(t, script)
		k := w.open()
		r := w.run(k, host.Agent{Name: "a"})
		if r.Exit != abi.ExitFailed {
			t.Fatalf("%s: %+v", name, r)
		}
		pid, err := k.Continue(t.Context(), r.Pid, abi.ContinueOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err = k.Wait(t.Context(), pid); err != nil || r.Output != "fine" {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
}
