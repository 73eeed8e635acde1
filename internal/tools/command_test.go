//go:build linux

package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/program"
)

// sh is a command tool of a shell script.
func sh(script string) []string { return []string{"sh", "-c", script} }

// What programs may do to their input and output.
func TestNasty(t *testing.T) {
	r := supervised(t)
	big := json.RawMessage(`{"big":"` + strings.Repeat("x", 1<<20) + `"}`)
	for _, c := range []struct {
		name    string
		command []string
		args    json.RawMessage
		most    int64
		value   string   // exact
		code    abi.Code // empty: success
		says    string   // part of the message
		got     string   // part of what came
		bytes   int64
		forCode bool // code reads the result
	}{
		{name: "json", command: sh(`printf ' { "a" : [1, 2.0],\n "b":"<&>" }\n\n'`), value: `{"a":[1,2.0],"b":"<&>"}`, bytes: 33},
		{name: "text", command: sh(`echo hello; echo world`), value: `"hello\nworld"`},
		{name: "nothing", command: sh(`:`), value: `""`},
		{name: "two values", command: sh(`echo 1 2`), value: `"1 2"`},
		{name: "key twice", command: sh(`echo '{"a":1,"a":2}'`), value: `"{\"a\":1,\"a\":2}"`},
		{name: "arguments", command: []string{"cat"}, args: json.RawMessage(`{"a": "é\u0000<"}`), value: `{"a":"é\u0000<"}`},
		{name: "binary", command: nastyProgram(t, "bytes", "6100ff62"), value: `"a\u0000` + "\uFFFD" + `b"`},
		{name: "half a character", command: nastyProgram(t, "bytes", "61c3"), value: `"a` + "\uFFFD" + `"`},
		{name: "large in", command: nastyProgram(t, "deaf"), args: big, value: `{"deaf":true}`},
		{name: "large through", command: nastyProgram(t, "echo"), args: big, forCode: true, value: string(big), bytes: int64(len(big))},
		{name: "stderr and 0", command: sh(`echo 'Traceback (most recent call last)' >&2; echo '{"ok":1}'`), value: `{"ok":1}`},
		{name: "exit 3", command: sh(`echo partial; echo first >&2; echo last words >&2; exit 3`), code: abi.ToolFailed,
			says: "exited with 3: last words", got: "partial\n\nfirst\nlast words", bytes: 25},
		{name: "SIGSEGV", command: sh(`kill -SEGV $$`), code: abi.ToolFailed, says: "ended by SIGSEGV"},
		{name: "SIGKILL", command: nastyProgram(t, "signal", "9"), code: abi.ToolFailed, says: "ended by SIGKILL"},
		{name: "SIGTERM", command: nastyProgram(t, "signal", "15"), code: abi.ToolFailed, says: "ended by SIGTERM"},
		{name: "flood", command: nastyProgram(t, "flood"), most: 1000, code: abi.LimitOutputBytes, got: strings.Repeat("0123456789abcde\n", 62) + "01234567", says: "more than 1000 bytes"},
		{name: "flood of errors", command: sh(`while :; do echo no >&2; done`), most: 1000, code: abi.LimitOutputBytes, says: "more than 1000 bytes"},
		{name: "just enough", command: sh(`printf 12345; printf 67890 >&2`), most: 10, value: `12345`, bytes: 10},
		{name: "one too many", command: sh(`printf 123456; printf 67890 >&2`), most: 10, code: abi.LimitOutputBytes},
		{name: "no output allowed", command: sh(`echo`), most: -1, code: abi.LimitOutputBytes},
		{name: "many errors", command: sh(`i=0; while [ $i -lt 3000 ]; do echo "line $i"; i=$((i+1)); done >&2; exit 1`), code: abi.ToolFailed, says: "line 2999", got: "line 2990"},
		{name: "no program", command: []string{"no-such-program-here"}, code: abi.ToolFailed, says: "could not be started"},
		{name: "not executable", command: []string{"/dev/null"}, code: abi.ToolFailed, says: "could not be started"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := command1(t, abi.ToolSpec{Command: c.command, Timeout: 20 * time.Second}, r)
			if c.args == nil {
				c.args = none
			}
			out := tl.Run(context.Background(), Input{Args: c.args, MaxOutput: c.most, Code: c.forCode})
			if c.code == "" && out.Err != nil || c.code != "" && (out.Err == nil || out.Err.Code != c.code) {
				t.Fatalf("got %.200s, %+v; want code %q", out.Value, out.Err, c.code)
			}
			if (c.value != "" || c.code == "") && string(out.Value) != c.value {
				t.Errorf("value %.300s, want %.300s", out.Value, c.value)
			}
			if c.bytes != 0 && out.Bytes != c.bytes {
				t.Errorf("%d bytes counted, want %d", out.Bytes, c.bytes)
			}
			if out.Err != nil {
				if !strings.Contains(out.Err.Message, c.says) || !strings.Contains(out.Err.Got, c.got) {
					t.Errorf("says %q, got %q; want %q, %q", out.Err.Message, out.Err.Got, c.says, c.got)
				}
				if len(out.Err.Got) > maxText+errorShown || len(out.Err.Message) > maxText {
					t.Errorf("%d bytes got, %d message", len(out.Err.Got), len(out.Err.Message))
				}
			}
		})
	}
}

// TestLongOutput: a command that prints much is not stopped for it. A model gets the
// beginning, the end and the way to the rest, and all of it is kept up to MaxKept.
func TestLongOutput(t *testing.T) {
	r := supervised(t)
	for _, c := range []struct {
		name, script string
		fails        bool
		says         string // between the parts
		parts, whole int
		gap          string // in what is kept; empty: all of it is kept
	}{
		{"ten megabytes", `yes 123456789 | head -c 10000000; echo end`, false, "\n... 9.9 MB left out; read the rest ...\n", partShown, 10_000_004, ""},
		{"more than is kept", `yes 123456789 | head -c 40000000; echo end`, false, "\n... 39.9 MB left out; read the rest ...\n", partShown, MaxKept + 50, "\n... 23.2 MB left out; Kern did not keep them ...\n"},
		{"just short enough", `yes 123456789 | head -c 1048000; echo end`, false, "", 1048004, 0, ""},
		{"a failure", `yes 123456789 | head -c 100000; echo end; exit 1`, true, "\n... 95.9 kB left out; read the rest ...\n", errorShown / 2, 100_004, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := command1(t, abi.ToolSpec{Command: sh(c.script), Timeout: time.Minute}, r).Run(context.Background(), Input{Args: none, Rest: "read the rest"})
			var shown string
			if c.fails {
				if out.Err == nil || out.Err.Code != abi.ToolFailed {
					t.Fatalf("%+v", out.Err)
				}
				shown = out.Err.Got
			} else if err := json.Unmarshal(out.Value, &shown); err != nil || out.Err != nil {
				t.Fatalf("%v, %+v", err, out.Err)
			}
			before, after, cut := strings.Cut(shown, c.says)
			if c.says != "" && (!cut || !strings.HasPrefix(before, "123456789\n") || !strings.HasSuffix(after, "89\nend\n") && !strings.HasSuffix(after, "end") || len(before) > c.parts || len(after) > c.parts+100) {
				t.Errorf("%d bytes, %q, %d bytes: %.100q ... %.100q", len(before), c.says, len(after), before, after)
			}
			if n := len(out.Whole); n > c.whole || n < c.whole-50 {
				t.Errorf("%d bytes kept, want %d", n, c.whole)
			}
			if c.gap != "" && !bytes.Contains(out.Whole, []byte(c.gap)) {
				t.Error("what is kept does not say what is missing")
			}
		})
	}
}

// TestStarvedReader: the deadline at the end of a run passes before the output was
// read. All of it is read, also while somebody else holds the pipe open.
func TestStarvedReader(t *testing.T) {
	p, err := openPipes()
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("0123456789abcde\n"), 60<<10/16)
	if _, err := p.theirs[1].Write(text); err != nil {
		t.Fatal(err)
	}
	for _, f := range p.out {
		if err := f.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	p.begin(nil, math.MaxInt64, func() {})
	p.done.Wait()
	p.closeProgramEnds()
	p.finish()
	if got := p.stdout.text(nil, false); !bytes.Equal(got, text) {
		t.Errorf("%d of %d bytes were read", len(got), len(text))
	}
}

// TestPartialOutput: what a command printed survives its time-out and its kill.
func TestPartialOutput(t *testing.T) {
	r := supervised(t)
	for code, timeout := range map[abi.Code]time.Duration{abi.ToolTimeout: 300 * time.Millisecond, abi.Interrupted: time.Minute} {
		file := filepath.Join(t.TempDir(), "printed")
		ctx, cancel := context.WithCancel(context.Background())
		tl := command1(t, abi.ToolSpec{Command: sh(`echo partial; echo complaint >&2; : > ` + file + `; sleep 60`), Timeout: timeout}, r)
		if code == abi.Interrupted {
			go func() {
				defer cancel()
				for len(mustGlob(file)) == 0 {
					runtime.Gosched()
				}
			}()
		}
		out := tl.Run(ctx, Input{Args: none})
		cancel()
		if out.Err == nil || out.Err.Code != code || out.Err.Got != "partial\n\ncomplaint" {
			t.Errorf("%s: %+v", code, out.Err)
		}
	}
}

// counted is a tool that notes each run of it in a file, outside of us.
func counted(t *testing.T, then string) (command []string, runs func() int) {
	file := filepath.Join(t.TempDir(), "runs")
	return sh(`echo run >>` + file + `; n=$(wc -l <` + file + `); ` + then), func() int {
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return bytes.Count(b, []byte("\n"))
	}
}

// One Run is one attempt: who decides about another is the kernel.
func TestScenario07FailsTwice(t *testing.T) {
	cmd, runs := counted(t, `[ "$n" -ge 3 ] || { echo not yet >&2; exit 1; }; echo '"done"'`)
	tl := command1(t, abi.ToolSpec{Command: cmd, Effect: abi.Idempotent, Attempts: 3}, supervised(t))
	for attempt := 1; attempt <= 3; attempt++ {
		out := tl.Run(context.Background(), Input{Args: none, Attempt: attempt})
		if n := runs(); n != attempt {
			t.Fatalf("%d runs after attempt %d", n, attempt)
		}
		if ok := out.Err == nil; ok != (attempt == 3) {
			t.Errorf("attempt %d: %+v", attempt, out.Err)
		}
	}
}

func TestScenario08FailsOnce(t *testing.T) {
	cmd, runs := counted(t, `exit 1`)
	tl := command1(t, abi.ToolSpec{Command: cmd}, supervised(t))
	if out := tl.Run(context.Background(), Input{Args: none}); out.Err == nil || out.Err.Code != abi.ToolFailed {
		t.Errorf("got %+v", out.Err)
	}
	if n := runs(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

// What a failing call took is told, so that it can be booked.
func TestScenario09FailuresAreNotFree(t *testing.T) {
	tl := command1(t, abi.ToolSpec{Command: sh(`echo 12345; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 1`)}, supervised(t))
	out := tl.Run(context.Background(), Input{Args: none})
	if out.Err == nil || out.Bytes != 6 || out.CPU <= 0 || out.Wall <= 0 {
		t.Errorf("got %+v with %d bytes, %s CPU, %s", out.Err, out.Bytes, out.CPU, out.Wall)
	}
}

// The CPU time of descendants counts, also of one that lost its parent, and
// time that nobody used does not.
func TestCPUOfDescendants(t *testing.T) {
	need(t, "setsid")
	const orphan = `(setsid "$@" &) | cat` // cat ends when it does
	r := supervised(t)
	for _, c := range []struct {
		what []string
		took bool
	}{{nastyProgram(t, "burn"), true}, {[]string{"sleep", "0.4"}, false}} {
		out := command1(t, abi.ToolSpec{Command: append(append(sh(orphan), "sh"), c.what...)}, r).Run(context.Background(), Input{Args: none})
		if out.Err != nil || (out.CPU >= burnt) != c.took {
			t.Errorf("%s in an orphan: %s, %+v; it took %s or more: %v", c.what, out.CPU, out.Err, burnt, c.took)
		}
	}
}

func TestScenario15TwentyAtOnce(t *testing.T) {
	r := supervised(t, t.Name())
	tl := command1(t, abi.ToolSpec{Command: []string{"cat"}}, r)
	var wg sync.WaitGroup
	outs := make([]Output, 20)
	for i := range outs {
		wg.Go(func() {
			outs[i] = tl.Run(context.Background(), Input{Call: uint64(i), Args: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
		})
	}
	wg.Wait()
	for i, o := range outs {
		if want := fmt.Sprintf(`{"n":%d}`, i); o.Err != nil || string(o.Value) != want {
			t.Errorf("call %d: %s, %+v", i, o.Value, o.Err)
		}
	}
	if n := len(marked(t.Name())); n > 2*program.DefaultIdle { // each has a keeper
		t.Errorf("%d processes of idle supervisors, want at most %d", n, 2*program.DefaultIdle)
	}
}

func TestScenario16BadArguments(t *testing.T) {
	cmd, runs := counted(t, `:`)
	tl := command1(t, abi.ToolSpec{Command: cmd, Schema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"},"rows":{"type":"array","items":{"type":"array","items":{"type":"integer"}}}},"required":["text"],"additionalProperties":false}`)}, supervised(t))
	for args, where := range map[string]string{
		``: "", `{"text":`: "", `not json`: "", `[]`: "", `"text"`: "", `null`: "", `{}`: "", `{"text":"a"} {"text":"b"}`: "", `{"text":"a","text":"b"}`: "",
		`{"text":1}`: "/text", `{"text":"a","extra":1}`: "/extra", `{"text":"a","rows":[[1],[1,"2"]]}`: "/rows/1/1", `{"text":"a","rows":[1]}`: "/rows/0",
	} {
		out := tl.Run(context.Background(), Input{Args: json.RawMessage(args)})
		e := out.Err
		if e == nil || e.Code != abi.InvalidArguments || e.Where != where || e.Hint == "" {
			t.Errorf("%s: %+v, want INVALID_ARGUMENTS at %q", args, e, where)
			continue
		}
		if json.Valid([]byte(args)) && !strings.Contains(args, `"text":"b"`) && !json.Valid(e.Expected) {
			t.Errorf("%s: no schema in the error: %q", args, e.Expected)
		}
	}
	if n := runs(); n != 0 {
		t.Errorf("%d runs, want none", n)
	}
	if out := tl.Run(context.Background(), Input{Args: json.RawMessage(`{"text":"a","rows":[[1]]}`)}); out.Err != nil || runs() != 1 {
		t.Errorf("good arguments: %+v, %d runs", out.Err, runs())
	}
	if e := tl.CheckArgs(json.RawMessage(`{"text":"a"}`)); e != nil {
		t.Errorf("CheckArgs: %+v", e)
	}
}

func TestScenario17BadResult(t *testing.T) {
	r := supervised(t)
	result := json.RawMessage(`{"type":"object","properties":{"rows":{"type":"array","items":{"type":"integer"}}},"required":["rows"]}`)
	for output, want := range map[string]struct{ where, says string }{
		`{"rows":[1,2]}`:        {"", ""},
		`{"rows":[1,"2"]}`:      {"/rows/1", "expected integer, got string"},
		`{}`:                    {"", `missing field "rows"`},
		`no json`:               {"", "expected object, got string"},
		`{"rows":[],"rows":[]}`: {"", "only once"},
	} {
		tl := command1(t, abi.ToolSpec{Command: sh(`printf '%s' '` + output + `'`), Result: result}, r)
		out := tl.Run(context.Background(), Input{Args: none})
		if want.says == "" {
			if out.Err != nil || string(out.Value) != output {
				t.Errorf("%s: %s, %+v", output, out.Value, out.Err)
			}
			continue
		}
		if out.Err == nil || out.Err.Code != abi.InvalidResult || out.Err.Where != want.where || !strings.Contains(out.Err.Message, want.says) || out.Value != nil {
			t.Errorf("%s: %s, %+v; want INVALID_RESULT at %q: %s", output, out.Value, out.Err, want.where, want.says)
		}
		if out.Bytes != int64(len(output)) {
			t.Errorf("%s: %d bytes", output, out.Bytes)
		}
	}
}

// Tools are values: those of one name do not know of each other.
func TestScenario19SameName(t *testing.T) {
	r := supervised(t)
	var wg sync.WaitGroup
	for i := range 50 {
		tl := command1(t, abi.ToolSpec{Name: "same", Command: sh(fmt.Sprintf(`pwd; echo %d >n; cat n`, i))}, r)
		wg.Go(func() {
			out := tl.Run(context.Background(), Input{Pid: abi.Pid(i), Args: none})
			var text string
			if out.Err != nil || json.Unmarshal(out.Value, &text) != nil || !strings.HasSuffix(text, fmt.Sprintf("\n%d", i)) {
				t.Errorf("process %d: %s, %+v", i, out.Value, out.Err)
			}
		})
	}
	wg.Wait()
}

const canary = "sk-canary-0123456789abcdef"

func TestScenario34NoSecretInTools(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", canary)
	t.Setenv("KERN_PG", canary)
	t.Setenv("PYTHONPATH", canary)
	for _, pooled := range []bool{true, false} {
		r := supervised(t)
		if !pooled {
			r = unpooled()
		}
		// Its own environment, and that of the supervisor and the keeper.
		tl := command1(t, abi.ToolSpec{Command: sh(`env; p=$PPID; for i in 1 2; do tr '\0' '\n' </proc/$p/environ; p=$(awk '{print $4}' /proc/$p/stat); done 2>/dev/null; ls -l /proc/self/fd | wc -l`)}, r)
		out := tl.Run(context.Background(), Input{Args: none, Env: map[string]string{"DECLARED": "yes"}})
		if out.Err != nil {
			t.Fatal(out.Err)
		}
		if strings.Contains(string(out.Value), canary) {
			t.Errorf("the canary is in %s", out.Value)
		}
		var text string
		if err := json.Unmarshal(out.Value, &text); err != nil {
			t.Fatal(err)
		}
		tl = command1(t, abi.ToolSpec{Command: []string{"env"}}, r)
		if err := json.Unmarshal(tl.Run(context.Background(), Input{Args: none, Env: map[string]string{"DECLARED": "yes"}}).Value, &text); err != nil {
			t.Fatal(err)
		}
		allowed := []string{"PATH", "HOME", "LANG", "TMPDIR", "DECLARED"}
		seen := 0
		for _, line := range strings.Split(text, "\n") {
			k, v, _ := strings.Cut(line, "=")
			if !slices.Contains(allowed, k) {
				t.Errorf("the environment holds %s", line)
			}
			if k == "DECLARED" && v == "yes" || k == "PATH" {
				seen++
			}
		}
		if seen != 2 {
			t.Errorf("the environment lacks PATH or what was declared: %s", text)
		}
	}
	tl := command1(t, abi.ToolSpec{Command: []string{"env"}}, supervised(t))
	for k, v := range map[string]string{"": "x", "A=B": "x", "A\x00": "x", "A": "x\x00B=y"} {
		if out := tl.Run(context.Background(), Input{Args: none, Env: map[string]string{k: v}}); out.Err == nil || !strings.Contains(out.Err.Message, "expected a name") {
			t.Errorf("variable %q: %+v", k, out.Err)
		}
	}
}

// A tool gets no descriptor of ours but its three.
func TestDescriptors(t *testing.T) {
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer closeFile(f)
	tl := command1(t, abi.ToolSpec{Command: sh(`ls /proc/self/fd`)}, supervised(t))
	for range 3 {
		out := tl.Run(context.Background(), Input{Args: none})
		if string(out.Value) != `"0\n1\n2\n3"` { // 3 is the directory that ls reads
			t.Errorf("descriptors: %s", out.Value)
		}
	}
}

// A call leaves no descriptor open here, however it ends.
func TestDescriptorsOfOurs(t *testing.T) {
	open := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	pooled := supervised(t)
	alone := unpooled()
	for name, c := range map[string]struct {
		r       Runner
		command []string
	}{
		"pooled": {pooled, sh(`cat`)}, "alone": {alone, sh(`cat`)}, "too much": {pooled, sh(`yes`)},
		"not started": {pooled, []string{"/dev/null"}}, "no supervisor": {Runner{Pool: &program.Pool{Command: []string{"/no/such/supervisor"}}}, sh(`cat`)},
	} {
		tl := command1(t, abi.ToolSpec{Command: c.command}, c.r)
		tl.Run(t.Context(), Input{Args: none, MaxOutput: 1000}) // what is kept for the next call is there now
		before := open()
		for range 5 {
			tl.Run(t.Context(), Input{Args: none, MaxOutput: 1000})
		}
		if after := open(); after > before {
			t.Errorf("%s: %d descriptors, and there were %d", name, after, before)
		}
	}
}

// The end of stderr is kept, and little more than that.
func TestRing(t *testing.T) {
	var r ring
	var all []byte
	for i := range 3000 {
		line := fmt.Appendf(nil, "line %d\n", i)
		all = append(all, line...)
		r.write(line)
		if n := len(r.bytes()); n < min(len(all), ringSize) || n > 2*ringSize || !bytes.HasSuffix(all, r.bytes()) {
			t.Fatalf("after %d bytes %d are kept", len(all), n)
		}
	}
}

// A program that took rights it does not have would be out of our reach.
func TestNoNewPrivileges(t *testing.T) {
	tl := command1(t, abi.ToolSpec{Command: sh(`grep NoNewPrivs /proc/self/status`)}, supervised(t))
	if out := tl.Run(context.Background(), Input{Args: none}); string(out.Value) != `"NoNewPrivs:\t1"` {
		t.Errorf("got %s, %+v", out.Value, out.Err)
	}
}

// TestSignalsAreDefault: what the supervisor shrugs off, the program does not.
// A program that ignored SIGPIPE would go on writing to nobody.
func TestSignalsAreDefault(t *testing.T) {
	need(t, "grep")
	tl := command1(t, abi.ToolSpec{Name: "status", Command: sh("grep -E 'Sig(Ign|Blk)' /proc/self/status | cut -f2")}, supervised(t))
	out := tl.Run(t.Context(), Input{Args: []byte("{}")})
	var text string
	if err := json.Unmarshal(out.Value, &text); err != nil || out.Err != nil {
		t.Fatalf("%s %v %v", out.Value, out.Err, err)
	}
	for _, mask := range strings.Fields(text) {
		n, err := strconv.ParseUint(mask, 16, 64)
		if err != nil || n&(1<<31-1) != 0 {
			t.Errorf("signals %s are ignored or blocked: %v", mask, err)
		}
	}
}

// asUser runs the test binary as a kernel, as a user without privileges.
func asUser(t *testing.T, dir, what string, env ...string) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "kernel")
	if err := os.WriteFile(bin, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "nasty", "kernel", dir, what)
	cmd.Env = append(os.Environ(), env...)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// A private directory goes, also if the program took its permissions away.
func TestPrivateDirectoryGoes(t *testing.T) {
	dir := nest(t)
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	if out := asUser(t, dir, "spoil", "TMPDIR="+tmp); out != "\"\"\n" {
		t.Errorf("got %s", out)
	}
	if left := mustGlob(tmp + "/*"); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
}

// A daemon that concealed itself cannot be read by a tool of the same user.
func TestConceal(t *testing.T) {
	dir := nest(t)
	for _, c := range []struct {
		system, conceal string
		found           bool
	}{
		{oldSystem, "", true}, // so that the test shows something
		{oldSystem, "1", false},
		{"", "1", false},
		{"", "", !landlocked()},
	} {
		out := asUser(t, dir, "spy", "OPENAI_API_KEY="+canary, "SYSTEM="+c.system, "CONCEAL="+c.conceal, "TMPDIR=/tmp")
		if found := strings.Contains(out, canary); found != c.found {
			t.Errorf("%+v: found %v in %s", c, found, out)
		}
	}
}

func TestSecrets(t *testing.T) {
	r := supervised(t)
	r.Secrets = []string{"hunter2-hunter2", `qu"ote\d/secret`, "", "hunter2-hunter2-longer"}
	pad := strings.Repeat("x", 990)
	for name, c := range map[string]struct {
		script string
		most   int64
	}{
		"json":    {script: `printf '{"k":"hunter2-hunter2","hunter2-hunter2":1,"l":"a hunter2-hunter2-longer b","e":"h\\u0075nter2-hunter2","q":"qu\\"ote\\\\d\\/secret"}'`},
		"text":    {script: `echo 'it is hunter2-hunter2 and qu"ote\d/secret'`},
		"stderr":  {script: `echo 'it is hunter2-hunter2' >&2; exit 1`},
		"partial": {script: `echo 'it is hunter2-hunter2'; exit 1`},
		"cut":     {script: `printf '` + pad + `hunter2-hunter2'; printf hunter2-hunter2`, most: 1000},
		"result":  {script: `printf '{"bad":"hunter2-hunter2"}'`},
	} {
		s := abi.ToolSpec{Command: sh(c.script)}
		if name == "result" {
			s.Result = json.RawMessage(`{"properties":{"bad":{"type":"null"}}}`)
		}
		tl := command1(t, s, r)
		out := tl.Run(context.Background(), Input{Args: none, MaxOutput: c.most})
		all := string(out.Value)
		if out.Err != nil {
			b, err := json.Marshal(out.Err)
			if err != nil {
				t.Fatal(err)
			}
			all += string(b)
		}
		for _, part := range []string{"hunter2-", "h\\u0075nter", "ote", "longer"} {
			if strings.Contains(all, part) {
				t.Errorf("%s: %q in %.300s", name, part, all)
			}
		}
		if !strings.Contains(all, mask) || (name == "json" && strings.Count(all, mask) != 5) {
			t.Errorf("%s: no mask, or too few, in %.300s", name, all)
		}
	}
	if _, err := Command(abi.ToolSpec{Name: "x", Command: []string{"cat"}}, Runner{Pool: &program.Pool{}, Secrets: []string{"short"}}); err == nil {
		t.Error("a secret of 5 bytes was taken")
	}
	if _, err := Command(abi.ToolSpec{Name: "x", Command: []string{"cat"}}, Runner{Pool: &program.Pool{}, Secrets: []string{"longer"}}); err != nil {
		t.Errorf("a secret of 6 bytes: %v", err)
	}
}

func TestRunnerRefuses(t *testing.T) {
	_, err := Command(abi.ToolSpec{Name: "x", Command: []string{"cat"}}, Runner{})
	if err == nil || !strings.Contains(err.Error(), "program.Main") {
		t.Errorf("no supervisor: %v", err)
	}
	_, err = Command(abi.ToolSpec{Name: "x"}, supervised(t))
	if err == nil || !strings.Contains(err.Error(), "command") {
		t.Errorf("no command: %v", err)
	}
	for _, argv := range [][]string{{"/no/such/supervisor"}, {"/bin/true"}, {"/bin/sh", "-c", "exit 3"}} {
		tl := command1(t, abi.ToolSpec{Command: []string{"cat"}}, Runner{Pool: &program.Pool{Command: argv, Idle: -1}})
		out := tl.Run(context.Background(), Input{Args: none})
		if out.Err == nil || !strings.Contains(out.Err.Message, "supervisor") {
			t.Errorf("%s: %+v", argv, out.Err)
		}
	}
}

func TestDirectories(t *testing.T) {
	r := supervised(t)
	dir := t.TempDir()
	tl := command1(t, abi.ToolSpec{Command: sh(`pwd; ls -A; echo x >file; echo y >"$TMPDIR/t"`)}, r)
	out := tl.Run(context.Background(), Input{Args: none, Dir: dir})
	if want := string(quoted([]byte(dir))); string(out.Value) != want {
		t.Errorf("in a directory: %s, want %s", out.Value, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
	var first string
	for range 2 { // a private one is empty each time, and gone afterwards
		out = tl.Run(context.Background(), Input{Args: none})
		var pwd string
		if err := json.Unmarshal(out.Value, &pwd); err != nil || strings.Contains(pwd, "\n") || pwd == first {
			t.Errorf("private: %s (%v)", out.Value, err)
		}
		if _, err := os.Stat(pwd); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", pwd, err)
		}
		first = pwd
	}
	if out := tl.Run(context.Background(), Input{Args: none, Dir: "/no/such/directory"}); out.Err == nil || out.Err.Code != abi.ToolFailed {
		t.Errorf("no directory: %+v", out.Err)
	}
}
