package kern_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kern-run/kern"
	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/model"
)

// tempDir is a directory for one example, and a function that removes it.
func tempDir() (string, func()) {
	dir, err := os.MkdirTemp("", "kern")
	if err != nil {
		log.Fatal(err)
	}
	return dir, func() { os.RemoveAll(dir) }
}

// openWith opens a kernel in a new directory, with a model named m that gives these
// replies, and returns a function that closes it.
func openWith(replies ...model.Reply) (*kern.Kernel, func()) {
	dir, remove := tempDir()
	k, err := kern.Open(context.Background(), kern.Config{
		Dir:    filepath.Join(dir, "data"),
		Models: map[string]model.Model{"m": &model.Script{Name: "m", Replies: replies}},
	})
	if err != nil {
		log.Fatal(err)
	}
	return k, func() {
		if err := k.Close(context.Background()); err != nil {
			log.Fatal(err)
		}
		remove()
	}
}

type pair struct {
	A int `json:"a"`
	B int `json:"b"`
}

// An agent runs on a task until it answers.
func ExampleKernel_Run() {
	k, done := openWith(model.Reply{Text: "It is a haiku."})
	defer done()
	r, err := k.Run(context.Background(), kern.Agent{Name: "reader", Model: "m"}, "What is this?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
	// Output: process 1: done after 1 steps for $0: It is a haiku.
}

// A tool is a Go function. The kernel checks its arguments and records its result.
func ExampleNewTool() {
	add := kern.NewTool("add", "Add two numbers.", func(_ context.Context, in pair) (int, error) {
		fmt.Println("adding", in.A, "and", in.B)
		return in.A + in.B, nil
	}).As(abi.Pure)
	k, done := openWith(
		model.Reply{Calls: []model.ScriptCall{{Tool: "add", Args: `{"a": 2, "b": 3}`}}},
		model.Reply{Text: "5"},
	)
	defer done()
	r, err := k.Run(context.Background(), kern.Agent{Model: "m", Tools: []kern.Tool{add}}, "What is 2 + 3?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Output, "after", r.Usage.ToolCalls, "tool call")
	// Output:
	// adding 2 and 3
	// 5 after 1 tool call
}

// An agent may make two steps. It never stops by itself, and the kernel refuses the
// third step. That is a result, so the error is nil.
func ExampleLimits() {
	add := kern.NewTool("add", "Add two numbers.", func(_ context.Context, in pair) (int, error) {
		return in.A + in.B, nil
	}).As(abi.Pure)
	dir, remove := tempDir()
	defer remove()
	ctx := context.Background()
	forever := &model.Script{Name: "forever", Repeat: true, Price: model.Price{Input: 3e9, Output: 15e9}}
	for a := range 3 {
		input, output := 100, 20
		forever.Replies = append(forever.Replies, model.Reply{Input: &input, Output: &output,
			Calls: []model.ScriptCall{{Tool: "add", Args: fmt.Sprintf(`{"a": %d, "b": 1}`, a)}}})
	}
	k, err := kern.Open(ctx, kern.Config{Dir: dir, Models: map[string]model.Model{"forever": forever}})
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close(ctx)
	r, err := k.Run(ctx, kern.Agent{
		Model:  "forever",
		Tools:  []kern.Tool{add},
		Limits: kern.Limits{Money: kern.Dollars(0.5), Steps: 2, Wall: 10 * time.Minute},
	}, "Add for ever.")
	fmt.Println(err, r.Exit, r.Reason, r.Code, "for", r.Usage.Money, "dollars")

	// An unset limit does not bind. None and Dollars(0) allow nothing.
	r, err = k.Run(ctx, kern.Agent{Model: "forever", Limits: kern.Limits{ModelCalls: kern.None}}, "Say nothing.")
	fmt.Println(err, r.Exit, r.Reason)
	_, err = k.Run(ctx, kern.Agent{Model: "forever", Limits: kern.Limits{Wall: 10}}, "Be quick.")
	fmt.Println(err)
	// Output:
	// <nil> limit steps LIMIT_STEPS for 0.0012 dollars
	// <nil> limit model_calls
	// limit wall is 10ns: expected a duration of at least 1ms such as 10*time.Minute, or kern.None to allow nothing
}

// Spawn returns when the process is in the journal, and Wait when it has exited.
func ExampleKernel_Spawn() {
	k, done := openWith(model.Reply{Text: "ready"})
	defer done()
	ctx := context.Background()
	var pids []abi.Pid
	for _, name := range []string{"ann", "bob"} {
		pid, err := k.Spawn(ctx, kern.Agent{Name: name, Model: "m"}, "Get ready.")
		if err != nil {
			log.Fatal(err)
		}
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		r, err := k.Wait(ctx, pid)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Pid, r.Exit, r.Output)
	}
	for p, err := range k.Processes(ctx) {
		fmt.Println(p.Name, p.State, err)
	}
	// Output:
	// 1 done ready
	// 2 done ready
	// ann exited <nil>
	// bob exited <nil>
}

// An agent changes files in its workspace. A change becomes visible when the call
// that made it returns well, and Undo takes it back.
func ExampleKernel_Undo() {
	dir, remove := tempDir()
	defer remove()
	site := filepath.Join(dir, "site")
	if err := os.Mkdir(site, 0o755); err != nil {
		log.Fatal(err)
	}
	note := filepath.Join(site, "note.txt")
	if err := os.WriteFile(note, []byte("old\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	write := kern.NewTool("write", "Write a note.", func(ctx context.Context, in struct {
		Text string `json:"text"`
	}) (string, error) {
		return "written", kern.Files(ctx).WriteFile("note.txt", []byte(in.Text), 0o644)
	}).As(abi.Transactional)
	k, done := openWith(
		model.Reply{Calls: []model.ScriptCall{{Tool: "write", Args: `{"text": "new\n"}`}}},
		model.Reply{Text: "done"},
	)
	defer done()
	ctx := context.Background()
	r, err := k.Run(ctx, kern.Agent{Model: "m", Tools: []kern.Tool{write}, Workspace: site}, "Write a note.")
	if err != nil {
		log.Fatal(err)
	}
	diffs, err := k.Diff(ctx, r.Pid, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range diffs {
		fmt.Printf("%s %s +%d -%d\n", d.Path, d.Change, d.Added, d.Removed)
	}
	undone, err := k.Undo(ctx, r.Pid, abi.UndoOptions{})
	if err != nil {
		log.Fatal(err)
	}
	text, _ := os.ReadFile(note)
	fmt.Printf("%d path restored: %q\n", len(undone.Paths), text)
	// Output:
	// note.txt changed +1 -1
	// 1 path restored: "old\n"
}

// A tool that fails leaves nothing behind.
func ExampleFiles() {
	dir, remove := tempDir()
	defer remove()
	draft := kern.NewTool("draft", "Write a draft.", func(ctx context.Context, _ struct{}) (string, error) {
		files := kern.Files(ctx)
		if err := files.WriteFile("draft.txt", []byte("half a sen"), 0o644); err != nil {
			return "", err
		}
		names, err := files.ReadDir(".")
		fmt.Println("the tool sees", names, err)
		return "", errors.New("out of ideas")
	}).As(abi.Transactional)
	k, done := openWith(
		model.Reply{Calls: []model.ScriptCall{{Tool: "draft", Args: `{}`}}},
		model.Reply{Text: "I could not."},
	)
	defer done()
	r, err := k.Run(context.Background(), kern.Agent{Model: "m", Tools: []kern.Tool{draft}, Workspace: dir}, "Draft something.")
	names, _ := os.ReadDir(dir)
	fmt.Println(r.Output, err, len(names), "files")
	// Output:
	// the tool sees [draft.txt] <nil>
	// I could not. <nil> 0 files
}

// A fork continues from an earlier record of another process.
func ExampleKernel_Fork() {
	k, done := openWith(model.Reply{Text: "first answer"})
	defer done()
	ctx := context.Background()
	r, err := k.Run(ctx, kern.Agent{Name: "writer", Model: "m"}, "Write.")
	if err != nil {
		log.Fatal(err)
	}
	f, err := k.Fork(ctx, r.Pid, abi.ForkOptions{At: 1})
	if err != nil {
		log.Fatal(err)
	}
	again, err := k.Wait(ctx, f.Pid)
	fmt.Println(again.Pid, again.Output, err)
	// Output: 2 first answer <nil>
}

// A question of an agent waits for a person.
func ExampleKernel_Decide() {
	k, done := openWith(
		model.Reply{Calls: []model.ScriptCall{{Tool: "ask", Args: `{"question": "May I publish?"}`}}},
		model.Reply{Text: "published"},
	)
	defer done()
	ctx := context.Background()
	pid, err := k.Spawn(ctx, kern.Agent{Model: "m", Calls: []string{"ask"}}, "Publish it.")
	if err != nil {
		log.Fatal(err)
	}
	for item, err := range k.Feed(ctx, abi.FeedOptions{Pid: pid, After: new(uint64)}) {
		if err != nil {
			log.Fatal(err)
		}
		if item.Record == nil || item.Record.Kind != abi.KindAsked {
			continue
		}
		p, err := k.Process(ctx, pid)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(p.State, p.Asks[0].Text)
		if err := k.Decide(ctx, pid, kern.Decision{Approve: true, By: "ann"}); err != nil {
			log.Fatal(err)
		}
		break
	}
	r, err := k.Wait(ctx, pid)
	fmt.Println(r.Output, err)
	// Output:
	// waiting May I publish?
	// published <nil>
}

// A model of this program implements model.Model. Here a script is one.
func ExampleConfig_models() {
	dir, remove := tempDir()
	defer remove()
	ctx := context.Background()
	k, err := kern.Open(ctx, kern.Config{Dir: dir, Models: map[string]model.Model{
		"parrot": &model.Script{Name: "parrot", Replies: []model.Reply{{Text: "Hello!"}}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close(ctx)
	r, err := k.Run(ctx, kern.Agent{Model: "parrot"}, "Say hello.")
	fmt.Println(r.Output, err)
	// Output: Hello! <nil>
}

// A process continues with the next Open. Go tools are not recorded, so Open fails
// before it resumes anything if a process needs one that it was not given.
func ExampleOpen() {
	dir, remove := tempDir()
	defer remove()
	ctx := context.Background()
	c := kern.Config{Dir: dir, Models: map[string]model.Model{"m": &model.Script{Name: "m", Replies: []model.Reply{
		{Calls: []model.ScriptCall{{Tool: "post", Args: `{}`}}},
		{Text: "posted"},
	}}}}
	called := make(chan bool, 1)
	poster := func(wait bool) kern.Agent {
		return kern.Agent{Name: "poster", Model: "m", Tools: []kern.Tool{
			kern.NewTool("post", "Post it.", func(ctx context.Context, _ struct{}) (string, error) {
				if wait {
					called <- true
					<-ctx.Done() // the kernel closes before the tool returns
					return "", ctx.Err()
				}
				return "ok", nil
			}).As(abi.Idempotent),
		}}
	}
	k, err := kern.Open(ctx, c)
	if err != nil {
		log.Fatal(err)
	}
	pid, err := k.Spawn(ctx, poster(true), "Post it.")
	if err != nil {
		log.Fatal(err)
	}
	<-called
	if err := k.Close(ctx); err != nil {
		log.Fatal(err)
	}

	_, err = kern.Open(ctx, c)
	fmt.Println(err)
	c.Agents = []kern.Agent{poster(false)}
	if k, err = kern.Open(ctx, c); err != nil {
		log.Fatal(err)
	}
	defer k.Close(ctx)
	r, err := k.Wait(ctx, pid)
	fmt.Println(r.Output, err)
	// Output:
	// process 1 of the agent "poster" may call the Go tool "post", which this program did not supply: add the agent to Config.Agents
	// posted <nil>
}

// The journal of a process is everything that it did.
func ExampleKernel_Records() {
	k, done := openWith(model.Reply{Text: "hello"})
	defer done()
	ctx := context.Background()
	r, err := k.Run(ctx, kern.Agent{Model: "m"}, "Greet.")
	if err != nil {
		log.Fatal(err)
	}
	for record, err := range k.Records(ctx, r.Pid, 0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(record.N, record.Kind)
	}
	replay, err := k.Replay(ctx, r.Pid)
	fmt.Println("replays the same:", replay.Same, err)
	// Output:
	// 1 spawned
	// 2 began
	// 3 ended
	// 4 ending
	// 5 ended
	// 6 exited
	// replays the same: true <nil>
}

// A key lets a program use models through the gateway, under limits.
func ExampleKernel_NewKey() {
	dir, remove := tempDir()
	defer remove()
	ctx := context.Background()
	settings := filepath.Join(dir, "kern.yaml")
	if err := os.WriteFile(settings, []byte(`providers: {openai: {key_env: MY_KEY}}`), 0o600); err != nil {
		log.Fatal(err)
	}
	k, err := kern.Open(ctx, kern.Config{Dir: dir, Settings: settings, Gateway: "127.0.0.1:0",
		Getenv: func(name string) string { return map[string]string{"MY_KEY": "sk-of-the-provider"}[name] }})
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close(ctx)
	key, err := k.NewKey(ctx, kern.KeyOptions{Name: "crew", Limits: kern.Limits{ModelCalls: kern.None}})
	if err != nil {
		log.Fatal(err)
	}
	body := strings.NewReader(`{"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}`)
	request, err := http.NewRequest("POST", key.OpenAI+"/chat/completions", body)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key.Key)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	var refusal struct {
		Error struct{ Code string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&refusal); err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.StatusCode >= 400, refusal.Error.Code)
	http.DefaultClient.CloseIdleConnections()
	// Output: true LIMIT_MODEL_CALLS
}

// A named account bounds all processes that are charged to it, and its limits can
// be changed at any time.
func ExampleKernel_SetAccount() {
	k, done := openWith(model.Reply{Text: "hello"})
	defer done()
	ctx := context.Background()
	if err := k.SetAccount(ctx, "team", kern.Limits{Steps: kern.None}); err != nil {
		log.Fatal(err)
	}
	r, err := k.Run(ctx, kern.Agent{Model: "m", Account: "team"}, "Greet.")
	fmt.Println(r.Exit, r.Reason, err)
	if err := k.SetAccount(ctx, "team", kern.Limits{Steps: 10}); err != nil {
		log.Fatal(err)
	}
	r, err = k.Run(ctx, kern.Agent{Model: "m", Account: "team"}, "Greet.")
	fmt.Println(r.Exit, r.Output, err)
	// Output:
	// limit steps <nil>
	// done hello <nil>
}

// Text arrives as the model streams it.
func ExampleKernel_RunWithText() {
	heard := make(chan string, 1)
	// The tool runs after the text of its answer, so it waits for that.
	check := kern.NewTool("check", "Check it.", func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case said := <-heard:
			return "you said: " + said, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}).As(abi.Pure)
	k, done := openWith(
		model.Reply{Text: "Let me check.", Calls: []model.ScriptCall{{Tool: "check", Args: `{}`}}},
		model.Reply{Text: "It is right."},
	)
	defer done()
	var pieces []string
	r, err := k.RunWithText(context.Background(), kern.Agent{Model: "m", Tools: []kern.Tool{check}}, "Is it right?", func(piece string) {
		if pieces = append(pieces, piece); len(pieces) == 1 {
			heard <- piece
		}
	})
	fmt.Println(slices.Contains(pieces, "Let me check."), r.Output, err)
	// Output: true It is right. <nil>
}
