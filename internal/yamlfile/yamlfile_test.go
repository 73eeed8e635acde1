package yamlfile

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// settings is a file with a field of every kind.
type settings struct {
	Name  string
	Count int
	Money int64
	Pause time.Duration
	On    bool
	List  []string
	JSON  string
}

func read(data string) (s settings, err error) {
	d, root, err := Parse("f.yaml", []byte(data))
	if err != nil {
		return s, err
	}
	err = d.Mapping(root, "the file", []string{"name", "count", "money", "pause", "on", "list", "json"}, map[string]Field{
		"name": Into(&s.Name, d.Text), "count": Into(&s.Count, d.Count), "money": Into(&s.Money, d.Dollars),
		"pause": Into(&s.Pause, d.Duration), "on": Into(&s.On, d.Boolean),
		"list": func(n ast.Node, what string) error {
			return d.List(n, what, AppendTo(&s.List, func(n ast.Node) (string, error) { return d.Scalar(n, what) }))
		},
		"json": func(n ast.Node, what string) error {
			b, err := d.JSON(n)
			s.JSON = string(b)
			return err
		},
	})
	return s, err
}

func TestRead(t *testing.T) {
	s, err := read("name: \"a b\"\ncount: 3\nmoney: 0.000000001\npause: 1m\non: true\nlist: [a, 2, 3.50, off]\njson: {b: [1, 2.50, 1e3, null, \"<x>\"], a: yes}\n")
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "a b" || s.Count != 3 || s.Money != 1 || s.Pause != time.Minute || !s.On || strings.Join(s.List, ",") != "a,2,3.50,off" {
		t.Errorf("%+v", s)
	}
	if want := `{"b":[1,2.50,1e3,null,"<x>"],"a":"yes"}`; s.JSON != want {
		t.Errorf("JSON %s, want %s", s.JSON, want)
	}
}

// TestRefuses holds that every error says where, what came and what was
// expected.
func TestRefuses(t *testing.T) {
	for data, want := range map[string]string{
		"":                        "f.yaml:1:1: the file is empty",
		"nmae: x":                 `f.yaml:1:1: unknown key "nmae" in the file, expected name, count`,
		"name: x\nname: y":        "f.yaml:2:1:",
		"count: -1":               `f.yaml:1:8: count is "-1", expected a whole number`,
		"count: many":             `f.yaml:1:8: count is "many", expected a whole number`,
		"money: 0.0000000001":     "f.yaml:1:8: money is",
		"pause: 10":               `f.yaml:1:8: pause is "10", expected a duration such as`,
		"on: 1":                   `f.yaml:1:5: on is "1", expected true or false`,
		"list: {a: 1}":            "f.yaml:1:7: list is a mapping, expected a list",
		"list: [[a]]":             "f.yaml:1:8: list is a list, expected a single value",
		"name: *x":                "f.yaml:1:7: the alias *x has no anchor",
		"json: !!binary aGk=":     "the tag !!binary is not supported",
		"[1, 2]":                  "the file is a list, expected a mapping with name",
		"name: \"a":               "f.yaml:1:",
		"a: 1\n---\nb: 2":         "a second document, expected one",
		"json:\n\ta: 1":           "f.yaml:2:1: not YAML: the line begins with a tab, expected spaces",
		"json:\n  a: 1\n \tb: 1":  "the line begins with a tab, expected spaces",
		"name: \xff":              "f.yaml:1:1: the line is not UTF-8",
		strings.Repeat("[", 5000): "f.yaml:1:1: nested too deeply",
		"name: x\n\njson: " + strings.Repeat("{a: [", 3000): "f.yaml:3:1: nested too deeply",
		"name: x\njson:\n  " + strings.Repeat("- ", 3000):   "f.yaml:3:1: nested too deeply",
		"name: x\njson:\n  " + strings.Repeat("? ", 3000):   "f.yaml:3:1: nested too deeply",
		"name: x\njson:\n  " + strings.Repeat(": ", 3000):   "f.yaml:3:1: nested too deeply",
		"json: {<<: {a: 1}}":                                "the merge key << is not supported",
	} {
		if _, err := read(data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", data, err, want)
		}
	}
}

// TestWideIsNotDeep: what opens and closes, or begins many lines, is not deep, nor
// is a text of dashes.
func TestWideIsNotDeep(t *testing.T) {
	for _, data := range []string{
		"name: x\njson: [" + strings.Repeat("{a: [1]}, ", 3000) + "1]\n",
		"name: x\njson:\n" + strings.Repeat("  - - a\n", 3000),
		"name: x\njson: a " + strings.Repeat("- ", 3000) + "\n",
	} {
		if _, err := read(data); err != nil {
			t.Errorf("%.40q: %v", data, err)
		}
	}
}

// TestAliasBomb holds that aliases cannot make a small file grow without end.
func TestAliasBomb(t *testing.T) {
	b := "name: x\njson:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 9; i++ {
		b += "  a" + string(rune('0'+i)) + ": &a" + string(rune('0'+i)) + " [" + strings.Repeat("*a"+string(rune('0'+i-1))+", ", 9) + "*a" + string(rune('0'+i-1)) + "]\n"
	}
	if _, err := read(b); err == nil || !strings.Contains(err.Error(), "grows beyond") {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: x\ncount: 3"))
	f.Add([]byte("json: {a: [1, {b: &x c}, *x]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := read(string(data)); err != nil && !strings.HasPrefix(err.Error(), "f.yaml:") {
			t.Errorf("an error without a place: %v", err)
		}
	})
}
