// Package task holds the code that all Go test clients share: a task, two tools, and
// one line of JSON for each mode. Usage: CLIENT MODE,MODE... [FACE]. The Python
// clients do the same: see ../../python/task.py.
package task

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Settings from the command line and the environment.
var (
	Face   = append(os.Args, "")[2]
	Model  string // model of the current mode
	Prompt = cmp.Or(os.Getenv("CLIENT_PROMPT"), "Do your task.")
)

// System is the system prompt of every request.
const System = "You are a careful assistant."

// Max is the limit on output tokens in every request.
const Max = 600

// A Line is what a client prints at the end of a mode.
type Line struct {
	Mode     string  `json:"mode"`
	Text     string  `json:"text"`
	Calls    []any   `json:"calls"`
	Input    int64   `json:"input"`
	Output   int64   `json:"output"`
	Pieces   int     `json:"pieces"`
	Thoughts int     `json:"thoughts"`
	Error    *Failed `json:"error,omitempty"`
}

// Failed is an error of the SDK.
type Failed struct {
	Type    string `json:"type"`
	Status  int    `json:"status"`
	Message string `json:"message"`
}

var line Line

// Book adds usage to the line of the current mode.
func Book(input, output int64) { line.Input, line.Output = line.Input+input, line.Output+output }

// A Tool is one of the two tools that a client offers to the model.
type Tool struct {
	Name, About string
	Schema      map[string]any
	Run         func(args string) string
}

// Tools are all tools of a client.
var Tools = []Tool{
	{"weather", "The weather in a city.", object(map[string]any{"city": kind("string")}, "city"), func(args string) string {
		var a struct {
			City string `json:"city"`
		}
		must(json.Unmarshal([]byte(args), &a))
		act("weather", a)
		degrees, ok := map[string]int{"Paris": 21, "Oslo": 4}[a.City]
		if !ok {
			degrees = 15
		}
		return fmt.Sprintf("%d degrees in %s%s", degrees, a.City, os.Getenv("CLIENT_SAY"))
	}},
	{"add", "The sum of two whole numbers.", object(map[string]any{"a": kind("integer"), "b": kind("integer")}, "a", "b"), func(args string) string {
		var a struct {
			A int `json:"a"`
			B int `json:"b"`
		}
		must(json.Unmarshal([]byte(args), &a))
		act("add", a)
		return strconv.Itoa(a.A + a.B)
	}},
}

// Report is the schema of a structured answer.
var Report = object(map[string]any{"city": kind("string"), "degrees": kind("integer")}, "city", "degrees")

// ReadReport checks a structured answer against [Report] and returns it as one line.
func ReadReport(text string) (string, error) {
	var r struct {
		City    string `json:"city"`
		Degrees int    `json:"degrees"`
	}
	err := json.Unmarshal([]byte(text), &r)
	return fmt.Sprintf("%s %d", r.City, r.Degrees), err
}

func kind(name string) map[string]any { return map[string]any{"type": name} }

func object(properties map[string]any, required ...string) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// Call runs a tool by its name.
func Call(name, args string) string {
	for _, t := range Tools {
		if t.Name == name {
			return t.Run(args)
		}
	}
	return "there is no tool " + name
}

// act records a call of a tool in the line and in the file CLIENT_TRACE. It then
// sleeps CLIENT_TOOL_SECONDS.
func act(name string, args any) {
	call := []any{name, args}
	line.Calls = append(line.Calls, call)
	if trace := os.Getenv("CLIENT_TRACE"); trace != "" {
		f, err := os.OpenFile(trace, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		must(err)
		must(json.NewEncoder(f).Encode(call))
		must(f.Close())
	}
	if s, err := strconv.ParseFloat(os.Getenv("CLIENT_TOOL_SECONDS"), 64); err == nil {
		time.Sleep(time.Duration(s * float64(time.Second)))
	}
}

// Main runs the modes and prints one line for each. An error is in its line and makes
// the exit code 1. The function status returns the HTTP status and body of an error.
func Main(modes map[string]func(*Line) error, status func(error) (int, string)) {
	code := 0
	for mode := range strings.SplitSeq(os.Args[1], ",") {
		line = Line{Mode: mode, Calls: []any{}}
		Model = cmp.Or(os.Getenv("CLIENT_MODEL"), mode)
		if err := modes[mode](&line); err != nil {
			n, body := status(err)
			line.Error = &Failed{fmt.Sprintf("%T", err), n, err.Error() + " " + body}
			code = 1
		}
		must(json.NewEncoder(os.Stdout).Encode(line))
	}
	os.Exit(code)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
