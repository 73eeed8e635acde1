package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/api"
	"github.com/kern-run/kern/internal/host"
)

func (d *demo) runaway(ctx context.Context) error {
	err := errors.Join(d.file("runaway.yaml", `
price: {input: 3.00, output: 15.00}
repeat: true
replies:
  - {calls: [{tool: search, args: {q: "more"}}], usage: {input: 1000, output: 200}}
  - {calls: [{tool: search, args: {q: "and more"}}], usage: {input: 1000, output: 200}}
  - {calls: [{tool: search, args: {q: "and still more"}}], usage: {input: 1000, output: 200}}
`), d.file("search.yaml", `
name: runaway
model: script:runaway.yaml
watchdog: {profile: "off"}
tools:
  - {name: search, command: [sh, -c, "echo called >> searches; echo nothing"], effect: pure}
`))
	if err != nil {
		return err
	}
	r, err := d.run(ctx, "-f", "search.yaml", "--money", "0.03", "find everything")
	if err != nil {
		return err
	}
	d.say("     it ended with %s (%s) after %d model calls, having spent $%s of $0.03", r.Exit, r.Code, r.Usage.ModelCalls, r.Usage.Money)
	d.check(r.Exit == abi.ExitLimit && r.Code == abi.LimitMoney, "the exit is limit(money)")
	d.check(r.Usage.Money == "0.03", "five calls at $0.006 were paid, and the sixth was refused before it was made")
	d.check(d.lines("searches") == int(r.Usage.ToolCalls), "the tool counted %d runs itself, as many as were booked", d.lines("searches"))
	return nil
}

func (d *demo) lines(name string) int {
	b, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte("\n"))
}

func (d *demo) circles(ctx context.Context) error {
	err := errors.Join(d.file("circles.yaml", `
repeat: true
replies:
  - {calls: [{tool: search, args: {q: "the same"}}]}
`), d.file("careful.yaml", `
name: circles
model: script:circles.yaml
tools:
  - {name: search, command: [sh, -c, "echo nothing"], effect: pure}
`))
	if err != nil {
		return err
	}
	r, err := d.run(ctx, "-f", "careful.yaml", "find it")
	if err != nil {
		return err
	}
	evidence := ""
	if r.Err != nil {
		evidence = r.Err.Message
	}
	d.say("     evidence: %s", evidence)
	d.check(r.Exit == abi.ExitLoop && r.Code == abi.WatchdogLoop, "the exit is loop")
	d.check(r.Usage.ToolCalls == 4, "three calls brought a warning to the model, the fourth the end")
	return nil
}

func (d *demo) killed(ctx context.Context) error {
	err := errors.Join(d.file("work.yaml", `
price: {input: 3.00, output: 15.00}
latency: 300ms
replies:
  - {calls: [{tool: pay, args: {invoice: 1}}], usage: {input: 1000, output: 100}}
  - {calls: [{tool: pay, args: {invoice: 2}}], usage: {input: 1000, output: 100}}
  - {calls: [{tool: pay, args: {invoice: 3}}], usage: {input: 1000, output: 100}}
  - {text: "all three invoices are paid", usage: {input: 1000, output: 100}}
`), d.file("payer.yaml", `
name: payer
model: script:work.yaml
limits: {money: 1.00}
tools:
  - {name: pay, command: [sh, -c, "echo paid >> payments; echo ok"]}
`))
	if err != nil {
		return err
	}
	pid, err := d.start(ctx, "payer.yaml", "pay the three invoices")
	if err != nil {
		return err
	}
	if err := d.killDaemon(ctx, pid); err != nil {
		return err
	}
	d.say("   $ kern wait %d    (which starts the daemon again)", pid)
	out, err := d.kern(ctx, "wait", fmt.Sprint(pid), "--json")
	if err != nil {
		return err
	}
	var r host.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return err
	}
	d.check(r.Exit == abi.ExitDone && r.Output == "all three invoices are paid", "the run went on and finished: %q", r.Output)
	d.check(d.lines("payments") == 3, "the tool itself counted %d payments for three invoices", d.lines("payments"))
	d.check(r.Usage.Money == "0.018", "four answers at $0.0045 are settled: $%s", r.Usage.Money)
	d.check(r.Usage.InDoubt != "", "the call that was cut off may have been billed: $%s stay reserved for it", r.Usage.InDoubt)
	if out, err = d.kern(ctx, "log", fmt.Sprint(pid), "--verify"); err != nil {
		return err
	}
	d.check(true, "%s", strings.TrimSpace(out))
	return nil
}

// killDaemon waits until the second model call of a process has begun, and
// kills the daemon.
func (d *demo) killDaemon(ctx context.Context, pid abi.Pid) error {
	c, err := api.Dial(ctx, api.SocketOf(filepath.Join(d.dir, "data")), d.Version)
	if err != nil {
		return err
	}
	defer c.Close()
	about, err := c.About(ctx)
	if err != nil {
		return err
	}
	found := errors.New("found")
	calls := 0
	err = c.Records(ctx, pid, 0, true, func(r *abi.Record, _ []byte) error {
		if r.Kind == abi.KindBegan && r.Intent.Row == "model" {
			calls++
		}
		if calls == 2 {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		return fmt.Errorf("the second model call of process %d was not seen: %v", pid, err)
	}
	daemon, err := os.FindProcess(about.Pid)
	if err != nil {
		return err
	}
	d.say("   $ kill -9 %d    (the daemon, while the model is asked again)", about.Pid)
	return daemon.Kill()
}

func (d *demo) family(ctx context.Context) error {
	child := func(name string) string {
		return fmt.Sprintf(`
replies:
  - {calls: [{tool: spawn, args: {task: "do a part", model: "script:%s", limits: {tool_calls: 2}}}]}
  - {calls: [{tool: wait, args: {}}]}
  - {text: "my child has told me how it ended"}
`, name)
	}
	err := errors.Join(d.file("grandparent.yaml", strings.Replace(child("parent-script.yaml"), ", limits: {tool_calls: 2}", "", 1)),
		d.file("parent-script.yaml", child("grandchild.yaml")), d.file("grandchild.yaml", `
replies:
  - {calls: [{tool: look, args: {n: 1}}]}
  - {calls: [{tool: look, args: {n: 2}}]}
  - {calls: [{tool: look, args: {n: 3}}]}
  - {text: "I could look twice, and found nothing yet"}
`), d.file("family.yaml", `
name: family
model: script:grandparent.yaml
tools:
  - {name: spawn}
  - {name: wait}
  - {name: look, command: [sh, -c, "echo nothing here"], effect: pure}
`))
	if err != nil {
		return err
	}
	r, err := d.run(ctx, "-f", "family.yaml", "look everywhere")
	if err != nil {
		return err
	}
	out, err := d.kern(ctx, "ps", "-a", "--json")
	if err != nil {
		return err
	}
	var all []api.Process
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return err
	}
	for _, p := range all {
		if p.Depth == 1 {
			log, err := d.kern(ctx, "log", fmt.Sprint(p.Pid), "--json")
			if err != nil {
				return err
			}
			d.check(strings.Contains(log, string(abi.LimitToolCalls)), "its parent %d was given the typed result", p.Pid)
		}
		if p.Depth != 2 {
			continue
		}
		out, err := d.kern(ctx, "wait", fmt.Sprint(p.Pid), "--json")
		if err != nil {
			return err
		}
		var g host.Result
		if err := json.Unmarshal([]byte(out), &g); err != nil {
			return err
		}
		d.say("     the grandchild %d ended with %s(%s); its last words: %q", g.Pid, g.Exit, g.Reason, g.Output)
		d.check(g.Code == abi.LimitToolCalls && g.Output != "", "it was stopped at its third tool call, and had last words")
	}
	d.check(r.Exit == abi.ExitDone, "its grandparent went on and finished: %q", r.Output)
	return nil
}

func (d *demo) boxed(ctx context.Context) error {
	err := errors.Join(d.file("code.yaml", `
replies:
  - calls:
      - tool: code
        args:
          source: |
            from tools.agent import look
            print(sum("nothing" in look({"n": i}) for i in range(3)), "looks")
            try:
                print(open("/etc/passwd").read())
            except OSError as e:
                print("no:", type(e).__name__)
  - calls: [{tool: code, args: {source: "while True: pass", timeout: 1s}}]
  - {text: "that is all I could do"}
`), d.file("coder.yaml", `
name: coder
model: script:code.yaml
tools:
  - {name: code}
  - {name: look, command: [sh, -c, "echo nothing here"], effect: pure}
`))
	if err != nil {
		return err
	}
	d.slow = "     compiling the Python interpreter, once for this user ..."
	r, err := d.run(ctx, "-f", "coder.yaml", "explore")
	d.slow = ""
	if err != nil {
		return err
	}
	log, err := d.kern(ctx, "log", fmt.Sprint(r.Pid), "--json")
	if err != nil {
		return err
	}
	d.check(strings.Contains(log, "3 looks") && r.Usage.ToolCalls == 5, "three tools were called from the code, each a system call of its own")
	d.check(strings.Contains(log, "no: FileNotFoundError"), "the host's /etc/passwd is not there for it")
	d.check(strings.Contains(log, string(abi.CodeTimeout)), "an endless loop was stopped after its second, and the model was told")
	return nil
}
