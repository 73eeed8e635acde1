package clients

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/internal/host"
	"github.com/kern-run/kern/internal/mockprovider"
	"github.com/kern-run/kern/model"
)

// A framework is a library or an agent that people run under Kern.
type framework struct {
	name    string
	of      string   // the package that has the version
	install []string // what is installed, pinned; a name with a version behind @ is of Node, else of Python
	program string   // in frameworks/; empty: an agent
	args    []string // of the program, or the command line of an agent
	line    string   // how a person starts an agent; empty: by its program
	limits  []string // of kern exec; nil: $0.05
	tool    string   // the tool that the model calls; empty: get_weather
	key     string   // the argument of that tool
	text    string   // what the model says; %d is the number of the answer
	env     []string
	places  string // the script of the package that puts its program in place
	past    bool   // it reaches its models past Kern
}

// uploaded is the day up to which packages that are not pinned here are looked at.
const uploaded = "2026-11-21"

var frameworks = []framework{
	{name: "Claude Code", of: "@anthropic-ai/claude-code", install: []string{"@anthropic-ai/claude-code@2.1.197"}, places: "install.cjs", tool: "Bash", key: "command", text: "Step %d.", limits: []string{"--money", "0.5"},
		args: []string{"claude", "-p", "--model", "claude-test", "--dangerously-skip-permissions", "do it"}, line: `claude -p "fix the tests"`, env: []string{"IS_SANDBOX=1"}},
	{name: "Codex", of: "@openai/codex", install: []string{"@openai/codex@0.169.0"}, tool: "exec_command", key: "cmd", text: "Step %d.", limits: []string{"--money", "0.5"},
		args: []string{"codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-test", "do it"}, line: `codex exec "fix the tests"`},
	{name: "opencode", of: "opencode-ai", install: []string{"opencode-ai@1.18.33"}, places: "postinstall.mjs", tool: "bash", key: "command", limits: []string{"--money", "0.5"},
		args: []string{"opencode", "run", "-m", "openai/gpt-test", "do it"}, line: `opencode run -m openai/gpt-5 "fix the tests"`,
		env: []string{`OPENCODE_CONFIG_CONTENT={"permission":"allow","small_model":"openai/gpt-test","provider":{"openai":{"models":{"gpt-test":{"limit":{"context":200000,"output":4000}}}}}}`}},
	{name: "mini-swe-agent", install: []string{"mini-swe-agent==2.4.6", "mcp==2.3.0"}, tool: "bash", key: "command", limits: []string{"--money", "0.1"},
		args: []string{"mini", "-y", "-m", "openai/gpt-test", "-t", "do it", "--exit-immediately"}, line: `mini -y -m openai/gpt-5 -t "fix the tests"`, env: []string{"MSWEA_COST_TRACKING=ignore_errors", "MSWEA_CONFIGURED=true"}},
	{name: "aider", of: "aider-chat", install: []string{"aider-chat==0.86.2"}, text: "I looked at part %d, and it is well.", limits: []string{"--money", "0.01"},
		args: []string{"sh", "-c", "while aider --model openai/gpt-test --yes-always --no-git --no-check-update --no-show-model-warnings --analytics-disable --message 'do it'; do :; done"}, line: `aider --model gpt-5 --message "fix the tests"`},
	{name: "gemini-cli", of: "@google/gemini-cli", install: []string{"@google/gemini-cli@0.61.0"}, past: true,
		args: []string{"gemini", "--skip-trust", "-p", "do it"}, line: `gemini -p "fix the tests"`, env: []string{"GEMINI_API_KEY=none"}},

	{name: "openai (chat)", of: "openai", install: []string{"openai==3.54.0"}, program: "openai_chat.py"},
	{name: "openai (responses)", of: "openai", install: []string{"openai==3.54.0"}, program: "openai_responses.py"},
	{name: "anthropic", install: []string{"anthropic==2.12.0"}, program: "anthropic_messages.py"},
	{name: "litellm (openai)", of: "litellm", install: []string{"litellm==1.106.2", "mcp==2.3.0"}, program: "litellm_loop.py", args: []string{"openai/gpt-test"}},
	{name: "litellm (anthropic)", of: "litellm", install: []string{"litellm==1.106.2", "mcp==2.3.0"}, program: "litellm_loop.py", args: []string{"anthropic/claude-test"}},
	{name: "langgraph", install: []string{"langgraph==1.2.22", "langchain-openai==1.7.3"}, program: "langgraph_react.py"},
	{name: "langchain", install: []string{"langchain==1.4.7", "langchain-anthropic==1.7.7"}, program: "langchain_agent.py"},
	{name: "openai-agents", install: []string{"openai-agents==0.24.0"}, program: "openai_agents.py"},
	{name: "pydantic-ai (openai)", of: "pydantic-ai-slim", install: []string{"pydantic-ai-slim[openai,anthropic]==2.68.0"}, program: "pydantic_agent.py", args: []string{"openai:gpt-test"}},
	{name: "pydantic-ai (anthropic)", of: "pydantic-ai-slim", install: []string{"pydantic-ai-slim[openai,anthropic]==2.68.0"}, program: "pydantic_agent.py", args: []string{"anthropic:claude-test"}},
	{name: "smolagents (tools)", of: "smolagents", install: []string{"smolagents[openai]==1.26.0"}, program: "smolagents_tools.py"},
	{name: "smolagents (code)", of: "smolagents", install: []string{"smolagents[openai]==1.26.0"}, program: "smolagents_code.py", text: "Thought: again.\n<code>\nprint(%d)\n</code>", limits: []string{"--money", "0.1"}},
	{name: "crewai", install: []string{"crewai==1.15.30"}, program: "crewai_crew.py"},
	{name: "dspy", install: []string{"dspy==3.4.1"}, program: "dspy_react.py", text: "[[ ## next_thought ## ]]\nagain\n\n[[ ## next_tool_name ## ]]\nget_weather\n\n[[ ## next_tool_args ## ]]\n{\"city\": \"City %d\"}\n\n[[ ## completed ## ]]"},
	{name: "instructor", install: []string{"instructor==1.17.0"}, program: "instructor_typed.py", tool: "Weather", limits: []string{"--money", "0.01", "--watchdog", "off"}},
	{name: "llama-index", of: "llama-index-core", install: []string{"llama-index-core==0.14.25", "llama-index-llms-openai-like"}, program: "llama_index_agent.py"},
	{name: "autogen", of: "autogen-agentchat", install: []string{"autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"}, program: "autogen_agent.py"},
	{name: "agent-framework", of: "agent-framework-core", install: []string{"agent-framework-core==1.23.0", "agent-framework-openai"}, program: "agent_framework_agent.py"},
	{name: "google-adk (LiteLlm)", of: "google-adk", install: []string{"google-adk==2.13.0", "litellm==1.106.2", "mcp==2.3.0"}, program: "google_adk_agent.py"},
	{name: "haystack", of: "haystack-ai", install: []string{"haystack-ai==3.4.0"}, program: "haystack_agent.py"},
	{name: "strands (OpenAI)", of: "strands-agents", install: []string{"strands-agents[openai]==1.62.0"}, program: "strands_agent.py"},
	{name: "claude-agent-sdk", install: []string{"claude-agent-sdk==0.2.187"}, program: "claude_agent.py", tool: "Bash", key: "command", limits: []string{"--money", "0.5"}, env: []string{"IS_SANDBOX=1"}},

	{name: "Node: openai", of: "openai", install: []string{"openai@6.49.0"}, program: "openai.mjs"},
	{name: "Node: @anthropic-ai/sdk", of: "@anthropic-ai/sdk", install: []string{"@anthropic-ai/sdk@1.12.0"}, program: "anthropic.mjs"},
	{name: "Node: ai (openai)", of: "ai", install: []string{"ai@6.0.326", "@ai-sdk/openai@3.0.141", "@ai-sdk/anthropic@3.0.138", "zod@4.6.7"}, program: "vercel.mjs", args: []string{"openai"}},
	{name: "Node: ai (anthropic)", of: "ai", install: []string{"ai@6.0.326", "@ai-sdk/openai@3.0.141", "@ai-sdk/anthropic@3.0.138", "zod@4.6.7"}, program: "vercel.mjs", args: []string{"anthropic"}},
	{name: "Node: langchain", of: "langchain", install: []string{"langchain@1.5.14", "@langchain/openai", "zod@4.6.7"}, program: "langchain.mjs"},
	{name: "Node: @openai/agents", of: "@openai/agents", install: []string{"@openai/agents@0.20.0", "zod@4.6.7"}, program: "openai_agents.mjs"},
	{name: "Node: @mastra/core", of: "@mastra/core", install: []string{"@mastra/core@0.24.9", "@ai-sdk/openai@2", "zod@4.6.7"}, program: "mastra.mjs", limits: []string{"--money", "0.05", "--watchdog", "off"}}, // it joins answers, so the script repeats itself
}

var (
	updateDoc = flag.Bool("update", false, "rewrite the rows of docs/frameworks.md from this run")
	document  = filepath.Join("..", "..", "docs", "frameworks.md")
)

// node says whether the framework is of Node.
func (f *framework) node() bool { return strings.LastIndex(f.install[0], "@") > 0 }

// version is what is pinned of the framework.
func (f *framework) version() string {
	if f.node() {
		return f.install[0][strings.LastIndex(f.install[0], "@")+1:]
	}
	_, v, _ := strings.Cut(f.install[0], "==")
	return v
}

// start is the line that a person types.
func (f *framework) start() string {
	line := f.line
	switch {
	case line != "":
	case f.node():
		line = "node agent.mjs"
	default:
		line = "python agent.py"
	}
	return "kern exec --money 1 -- " + line
}

// script is what the model says to it: the same tool for ever, each time with another
// argument.
func (f *framework) script(t *testing.T) *model.Script {
	t.Helper()
	s := &model.Script{Name: f.name, Price: model.Price{Input: 3_000_000_000, Output: 15_000_000_000}, Repeat: true}
	tool, key := f.tool, f.key
	if tool == "" {
		tool = "get_weather"
	}
	for i := range 200 {
		var r model.Reply
		if f.text != "" {
			r.Text = fmt.Sprintf(f.text, i+1)
		}
		args := fmt.Sprintf(`{"city":"City %d"}`, i+1)
		if key != "" {
			args = fmt.Sprintf(`{%q:"echo step %d","description":"a step"}`, key, i+1)
		}
		if f.text == "" || key != "" {
			r.Calls = []model.ScriptCall{{Tool: tool, Args: args}}
		}
		s.Replies = append(s.Replies, r)
	}
	return s
}

// home is where a framework is installed; frameworks of the same packages share it.
func (f *framework) home(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("KERN_CLIENTS")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(dir, "kern-clients")
	}
	name, _, _ := strings.Cut(f.install[0], "==")
	if f.node() {
		name = f.install[0][:strings.LastIndex(f.install[0], "@")] + "-node"
	}
	return filepath.Join(cache, strings.NewReplacer("/", "-", "@", "", "[", "-", "]", "", ",", "-").Replace(name))
}

// ready installs the framework where it is not there in this version.
func (f *framework) ready(t *testing.T) string {
	t.Helper()
	home := f.home(t)
	want := strings.Join(f.install, "\n") + "\n"
	if b, err := os.ReadFile(filepath.Join(home, "spec")); err == nil && string(b) == want {
		return home
	}
	steps := [][]string{{"python3", "-m", "venv", home}, {filepath.Join(home, "bin", "pip"), "install", "-q", "pip==26.3"},
		append([]string{filepath.Join(home, "bin", "pip"), "install", "-q", "--no-compile", "--uploaded-prior-to", uploaded + "T00:00:00Z"}, f.install...)}
	if f.node() {
		steps = [][]string{append([]string{"npm", "install", "--prefix", home, "--no-audit", "--no-fund", "--ignore-scripts", "--before=" + uploaded}, f.install...)}
		if f.places != "" {
			steps = append(steps, []string{"node", filepath.Join(home, "node_modules", f.of, f.places)})
		}
	}
	if err := errors.Join(os.RemoveAll(home), os.MkdirAll(home, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		out, err := exec.CommandContext(ctx, step[0], step[1:]...).CombinedOutput()
		if cancel(); err != nil {
			t.Fatalf("%s cannot be installed: %v: %v: %s", f.name, step, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(home, "spec"), []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
	return home
}

// argv is the command line of the framework that is installed at home.
func (f *framework) argv(t *testing.T, home string) []string {
	t.Helper()
	switch {
	case f.program == "":
		return f.args
	case f.node():
		at := filepath.Join(home, f.program)
		if err := place(filepath.Join("frameworks", f.program), at); err != nil {
			t.Fatal(err)
		}
		return append([]string{"node", at}, f.args...)
	}
	return append([]string{filepath.Join(home, "bin", "python"), filepath.Join(here, "frameworks", f.program)}, f.args...)
}

// A framed is what came of a framework.
type framed struct {
	code   int
	output string
	ended  host.Result
}

// run runs the framework under kern exec.
func (f *framework) run(t *testing.T, p provider) framed {
	t.Helper()
	home := f.ready(t)
	k := newKernel(t, p, "")
	path := filepath.Join(home, "bin")
	if f.node() {
		path = filepath.Join(home, "node_modules", ".bin")
	}
	for i, v := range k.env {
		if strings.HasPrefix(v, "PATH=") {
			k.env[i] = "PATH=" + path + string(filepath.ListSeparator) + v[len("PATH="):]
		}
	}
	// The network holds nothing else, and what a framework tells its makers is not tried.
	k.env = append(append(k.env, f.env...), "TERM=dumb", "LITELLM_LOCAL_MODEL_COST_MAP=True", "CREWAI_DISABLE_TELEMETRY=true", "OTEL_SDK_DISABLED=true", "HAYSTACK_TELEMETRY_ENABLED=False",
		"DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "CREWAI_TESTING=true", "LANGSMITH_TRACING=false", "ANONYMIZED_TELEMETRY=False")
	limits := f.limits
	if limits == nil {
		limits = []string{"--money", "0.05"}
	}
	ended := filepath.Join(k.dir, "ended.json")
	out, notes, code := k.kern(slices.Concat([]string{"exec", "--json-summary", ended}, limits, []string{"--"}, f.argv(t, home))...)
	r := framed{code: code, output: out + notes}
	b, err := os.ReadFile(ended)
	var e struct{ Process host.Result }
	if err := errors.Join(err, json.Unmarshal(b, &e)); err != nil && !f.past {
		t.Fatalf("exit code %d: %v\n%s", code, err, r.output)
	}
	r.ended = e.Process
	return r
}

// TestFrameworks runs a small loop of each framework against the mock. A limit stops
// each, and Kern's spend is the mock's bill. With -update it writes what a person sees
// into docs/frameworks.md.
func TestFrameworks(t *testing.T) {
	if os.Getenv("KERN_FRAMEWORKS") == "" {
		t.Skip("it installs gigabytes; make clients runs it")
	}
	rows := make(map[string]string)
	for i := range frameworks {
		f := &frameworks[i]
		t.Run(f.name, func(t *testing.T) {
			s := f.script(t)
			p := serve(t, mockprovider.Config{Scripts: map[string]*model.Script{"gpt-test": s, "claude-test": s}})
			r := f.run(t, p)
			b := p.Idle(t.Context())
			t.Logf("%d calls, $%s\n%s", r.ended.Usage.ModelCalls, r.ended.Usage.Money, r.output)
			if f.past {
				if b.Requests != 0 || !strings.Contains(r.output, "GEMINI_API_KEY") {
					t.Errorf("%d requests came, and Kern does not name what it does not govern", b.Requests)
				}
				if t.Failed() {
					return
				}
				rows[f.name] = f.row("not governed", "Kern names GEMINI_API_KEY at the start; `--sandbox jail` keeps it off the network")
				return
			}
			if r.code != 124 || r.ended.Reason != "money" {
				t.Errorf("exit code %d, reason %q, expected that the limit on money stops it", r.code, r.ended.Reason)
			}
			if spent := money(t, r.ended.Usage.Money); spent != b.Nano || spent == 0 {
				t.Errorf("kern booked $%s, and the mock billed $%s", r.ended.Usage.Money, b.Dollars)
			}
			if t.Failed() {
				return
			}
			rows[f.name] = f.row(fmt.Sprintf("%d calls, $%s of $%s", r.ended.Usage.ModelCalls, r.ended.Usage.Money, f.budget()), seen(r.output))
		})
	}
	if *updateDoc {
		rewrite(t, rows)
	}
}

// budget is the limit on money.
func (f *framework) budget() string {
	if i := slices.Index(f.limits, "--money"); i >= 0 {
		return f.limits[i+1]
	}
	return "0.05"
}

// row is a row of the document.
func (f *framework) row(did, seen string) string {
	program := ""
	if f.program != "" {
		program = "[" + f.program + "](../test/clients/frameworks/" + f.program + ")"
	}
	return f.head() + " " + program + " | " + did + " | " + seen + " |"
}

// head is the part of the row that no run changes.
func (f *framework) head() string {
	return fmt.Sprintf("| %s | %s | `%s` |", f.name, f.version(), f.start())
}

var (
	escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[a-zA-Z]|[\r\x00-\x08]")
	places  = regexp.MustCompile(`(/[\w.@+-]+){3,}`)
)

// seen is what a program prints of the refusal: its last line with the message, or
// else with the code.
func seen(output string) string {
	last, told := "", false
	for line := range strings.Lines(escapes.ReplaceAllString(output, "")) {
		line = strings.TrimSpace(line)
		tells := strings.Contains(line, "LIMIT_MONEY: ")
		if strings.Contains(line, "LIMIT_MONEY") && !strings.HasPrefix(line, "kern: ") && (tells || !told) {
			last, told = line, tells
		}
	}
	if last == "" {
		return "Kern's last lines only"
	}
	last = strings.NewReplacer("|", `\|`, "`", "'").Replace(places.ReplaceAllString(last, "…"))
	if at := strings.Index(last, "LIMIT_MONEY"); len(last) > 110 {
		last = last[max(0, at-70):min(len(last), at+40)] + "…"
	}
	return "`" + strings.ToValidUTF8(last, "") + "`"
}

// rewrite replaces rows of the document.
func rewrite(t *testing.T, rows map[string]string) {
	t.Helper()
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), tableHead)
	table, after, end := strings.Cut(rest, "\n\n")
	if !ok || !end {
		t.Fatalf("%s has no table", document)
	}
	var all strings.Builder
	for i := range frameworks {
		f := &frameworks[i]
		row := rows[f.name]
		for line := range strings.Lines(table) {
			if row == "" && strings.HasPrefix(line, "| "+f.name+" |") {
				row = strings.TrimSuffix(line, "\n")
			}
		}
		if row != "" {
			all.WriteString("\n" + row)
		}
	}
	if err := os.WriteFile(document, []byte(before+tableHead+all.String()+"\n\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

const tableHead = "| name | version | start it with | loop | stopped at a limit | what the program prints |\n|---|---|---|---|---|---|"

// TestFrameworksDocument: each framework has the row in the document that belongs to
// its version and command line, and there is no other row.
func TestFrameworksDocument(t *testing.T) {
	b, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), tableHead+"\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	lines := strings.Split(table, "\n")
	if len(lines) != len(frameworks) {
		t.Errorf("the document has %d rows, and there are %d frameworks; run make clients with UPDATE=1", len(lines), len(frameworks))
	}
	for _, name := range []string{"children.py", "children.mjs"} {
		if program, err := os.ReadFile(filepath.Join("frameworks", name)); err != nil || !strings.Contains(string(b), string(program)) {
			t.Errorf("the document shows another %s: %v", name, err)
		}
	}
	for i := range frameworks {
		f := &frameworks[i]
		if i < len(lines) && !strings.HasPrefix(lines[i], f.head()) {
			t.Errorf("row %d is\n%s\nexpected\n%s", i+1, lines[i], f.head())
		}
		if f.program != "" {
			if _, err := os.Stat(filepath.Join("frameworks", f.program)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestChildren runs the examples of the document: two parts of a program are two
// processes below it, and each reads what is left of its own limits.
func TestChildren(t *testing.T) {
	for _, c := range []client{{name: "children-python", part: "py", file: "../frameworks/children.py"}, {name: "children-node", part: "node", file: "children.mjs"}} {
		t.Run(c.name, func(t *testing.T) {
			s, err := model.ParseScript("gpt-test", []byte("price: {input: 3.00, output: 15.00}\nreplies: [{text: I am a part.}]"))
			if err != nil {
				t.Fatal(err)
			}
			argv := c.argv(t, "")[:2]
			k := newKernel(t, serve(t, mockprovider.Config{Scripts: map[string]*model.Script{"gpt-test": s}}), "")
			out, notes, code := k.kern(append([]string{"exec", "--money", "1", "--"}, argv...)...)
			for _, want := range []string{"writer has left: ", "critic has left: money=0.00", "steps=4", "I am a part."} {
				if !strings.Contains(out, want) || code != 0 {
					t.Fatalf("exit code %d, expected %q in\n%s%s", code, want, out, notes)
				}
			}
			if list, _, _ := k.kern("ps", "-a"); !strings.Contains(list, "writer") || !strings.Contains(list, "critic") {
				t.Errorf("the parts are no processes:\n%s", list)
			}
		})
	}
}
