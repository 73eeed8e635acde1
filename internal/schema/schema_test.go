package schema

// The mutants that these tests kill, each tried by hand:
//
//   - acceptsObject: `required&^seen` turned into `required&seen`    TestNodeAgreesWithLibrary, TestCheck
//   - bound: the signs of maximum and minimum swapped               TestNodeAgreesWithLibrary, TestCheck
//   - bound: exclusive ignored                                      TestNodeAgreesWithLibrary, TestCheck
//   - acceptsNumber: 1.0 is no integer                              TestNodeAgreesWithLibrary, TestCheck
//   - minLength counted in bytes, or before escapes are decoded     TestNodeAgreesWithLibrary, TestCheck
//   - acceptsObject: a required name taken as declared              TestNodeAgreesWithLibrary
//   - listed: values compared as text, not in canonical form        TestNodeAgreesWithLibrary, TestCheck
//   - acceptsAny: the reader of a failed branch kept                TestNodeAgreesWithLibrary
//   - jsontext: a key may come twice                                TestNotJSON
//   - jsontext: half a surrogate pair let through                   TestNotJSON
//   - jsontext: no bound on depth, or on the exponent               TestNotJSON
//   - Decimal.Append: zeros at the end of digits kept               TestCanonicalIsOneForm
//   - sortMembers: gap 1 left out                                   TestCanonicalIsOneForm
//   - worst: the library's first error instead of the ordered one   TestSameWordsEveryTime
//   - effort: visits never counted                                  TestEffortIsBounded
//   - noLoader: a loader that reads files                           TestCompileRefuses
//   - Check: no bound on the size of a document                     TestTooLarge
//   - FromType: a pointer not nullable, a small integer unbounded   TestFromTypeFitsTheDecoder

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// cases of testdata/check.json: schemas, with documents and what is said.
type checkCase struct {
	Name   string          `json:"name"`
	Node   bool            `json:"node"` // whether the schema has a node
	Schema json.RawMessage `json:"schema"`
	Docs   []struct {
		Doc      string          `json:"doc"`
		Where    string          `json:"where"`
		Message  string          `json:"message"` // empty: accepted
		Got      string          `json:"got"`
		Expected json.RawMessage `json:"expected"`
	} `json:"docs"`
}

func TestCheck(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "check.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []checkCase
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			s := mustCompile(t, string(c.Schema))
			if got := s.node != nil; got != c.Node {
				t.Errorf("has a node: %v, want %v", got, c.Node)
			}
			for _, d := range c.Docs {
				v := s.Check([]byte(d.Doc))
				switch {
				case v == nil && d.Message == "":
				case v == nil:
					t.Errorf("%s: accepted, want %q", d.Doc, d.Message)
				case v.Message != d.Message || v.Where != d.Where:
					t.Errorf("%s:\n got %q at %q\nwant %q at %q", d.Doc, v.Message, v.Where, d.Message, d.Where)
				case d.Got != "" && v.Got != d.Got:
					t.Errorf("%s: got %q, want %q", d.Doc, v.Got, d.Got)
				case d.Expected != nil && !sameJSON(t, v.Expected, d.Expected):
					t.Errorf("%s: expected %s, want %s", d.Doc, v.Expected, d.Expected)
				}
			}
		})
	}
}

// A document that is too large is refused, also by a schema that takes anything.
func TestTooLarge(t *testing.T) {
	doc := []byte(`"` + strings.Repeat("x", jsontext.MaxSize) + `"`)
	for _, raw := range []string{`true`, `{"type":"string"}`} {
		if v := mustCompile(t, raw).Check(doc); v == nil || !strings.Contains(v.Message, "at most") || len(v.Got) > maxGot {
			t.Errorf("%s: %.200v", raw, v)
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	ca, errA := jsontext.Canonical(nil, a)
	cb, errB := jsontext.Canonical(nil, b)
	if errA != nil || errB != nil {
		t.Fatalf("not JSON: %s (%v), %s (%v)", a, errA, b, errB)
	}
	return bytes.Equal(ca, cb)
}

func mustCompile(t testing.TB, raw string) *Schema {
	t.Helper()
	s, err := Compile([]byte(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return s
}

// Every document that is not one JSON value is refused, whatever the schema,
// and said to be no JSON rather than something else.
func TestNotJSON(t *testing.T) {
	docs := []string{"", " ", "{", `{"a":1`, `{"a":1}}`, `{"a":1} 2`, `{"a"}`, `{a:1}`, `{"a":1,}`, `[1,]`, `[1 2]`, "nul", "TRUE", "01", "1.", ".5",
		"+1", "1e", "1e+", "--1", "'a'", "\"a", "\"\x01\"", "\"\xff\"", "\"\xed\xa0\x80\"", `"\x"`, `"\u12"`, `"\ud800"`, `"\ud800\u0041"`, `"\udc00"`,
		`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `{"x":{"k":1,"k":2}}`, `[{"k":1,"k":2}]`, "1e1001", "1e-1001", "1e99999999999999999999999",
		strings.Repeat("1", jsontext.MaxNumber+1), strings.Repeat("[", jsontext.MaxDepth+1) + strings.Repeat("]", jsontext.MaxDepth+1),
		strings.Repeat(`{"a":`, jsontext.MaxDepth+1) + "1" + strings.Repeat("}", jsontext.MaxDepth+1), "NaN", "Infinity", "\ufeff{}", "{}\x00"}
	many := `{`
	for i := range 40 {
		many += `"` + strings.Repeat("k", i+1) + `":1,`
	}
	docs = append(docs, many+`"kkk":1}`)
	for _, raw := range []string{`true`, `{"properties":{"a":{},"x":{}}}`, `{"type":"object","properties":{"a":{"type":"string"}}}`, `{"$ref":"#/$defs/a","$defs":{"a":{}}}`} {
		s := mustCompile(t, raw)
		for _, d := range docs {
			if err := jsontext.Check([]byte(d), jsontext.Strict); err == nil {
				t.Errorf("Check(%.40q) = nil", d)
			}
			if v := s.Check([]byte(d)); v == nil || !strings.HasPrefix(v.Message, "not a JSON document: ") {
				t.Errorf("%s: Check(%.40q) = %+v", raw, d, v)
			}
			if out, err := jsontext.Canonical([]byte("x"), []byte(d)); err == nil || string(out) != "x" {
				t.Errorf("jsontext.Canonical(%.40q) = %q, %v", d, out, err)
			}
		}
	}
	for _, d := range []string{`"\ud83d\ude00"`, `{"a":{"a":1},"b":[{"a":1}]}`, "1e1000", strings.Repeat("[", jsontext.MaxDepth) + strings.Repeat("]", jsontext.MaxDepth),
		" \t\r\n1 ", `""`, `{"":1}`} {
		if err := jsontext.Check([]byte(d), jsontext.Strict); err != nil {
			t.Errorf("Check(%.40q) = %v", d, err)
		}
	}
	if v := mustCompile(t, `true`).Check(make([]byte, jsontext.MaxSize+1)); v == nil || !strings.Contains(v.Message, "at most 16777216") {
		t.Errorf("a document beyond the size: %+v", v)
	}
}

func TestCompileRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(file, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		``:                                      "not JSON",
		`{"a":1,"a":2}`:                         "only once",
		`5`:                                     "expected boolean or object",
		`{"type":"strin"}`:                      "at /type",
		`{"properties":{"a":{"minLength":-1}}}`: "at /properties/a/minLength",
		`{"required":["a","a"]}`:                "at /required",
		`{"required":"a"}`:                      "at /required",
		`{"pattern":"(?=a)"}`:                   "at /pattern",
		`{"$ref":"https://127.0.0.1:1/s"}`:      "nothing is fetched",
		`{"$ref":"file://` + file + `"}`:        "nothing is fetched",
		`{"$schema":"https://127.0.0.1:1/s"}`:   "nothing is fetched",
		`{"$ref":"#/nope"}`:                     "not found",
		`{"minimum":1e1001}`:                    "exponent",
		`{"title":"` + strings.Repeat("x", maxSchema) + `"}`: "at most",
	} {
		if _, err := Compile([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", raw, err, want)
		}
	}
}

// A recursive schema with alternatives doubles its work at each level of the
// document; the check gives up in time instead.
func TestEffortIsBounded(t *testing.T) {
	s := mustCompile(t, `{"anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["x"]},{"properties":{"a":{"$ref":"#"}},"required":["y"]}]}`)
	doc := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	began := time.Now()
	v := s.Check([]byte(doc))
	if v == nil || !strings.Contains(v.Message, "too much work") {
		t.Errorf("got %+v", v)
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("took %s", d)
	}
	if v := s.Check([]byte(`{"a":1,"x":1}`)); v != nil {
		t.Errorf("the next check: %+v", v)
	}
}

// The library goes through maps in no order; what is said must not.
func TestSameWordsEveryTime(t *testing.T) {
	raw := `{"$defs":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/s"},"b":{"$ref":"#/$defs/s"},"c":{"oneOf":[{"type":"string"},{"type":"object","properties":{"k":{"type":"null"}}}]}},
		"patternProperties":{"^p":{"type":"null"},"^q":{"type":"null"}},"dependentRequired":{"a":["x"],"b":["y"]},"additionalProperties":false}`
	for _, doc := range []string{`{"a":1,"b":2}`, `{"z":1,"y":1,"x":1}`, `{"p1":1,"p2":2,"q1":1}`, `{"a":"","b":""}`, `{"c":{"k":1},"a":1}`, `{"c":1}`} {
		var first *Violation
		for i := range 60 {
			v := mustCompile(t, raw).Check([]byte(doc))
			if v == nil {
				t.Fatalf("%s: accepted", doc)
			}
			if i == 0 {
				first = v
			} else if !reflect.DeepEqual(v, first) {
				t.Fatalf("%s: %+v, then %+v", doc, first, v)
			}
		}
	}
}

// A Violation stays small however large the schema and the document are.
func TestViolationIsSmall(t *testing.T) {
	var props []string
	for i := range 60 {
		props = append(props, `"`+strings.Repeat("p", i+1)+`":{"type":"string"}`)
	}
	s := mustCompile(t, `{"type":"object","properties":{`+strings.Join(props, ",")+`},"required":["p"],"additionalProperties":false}`)
	if s.node == nil {
		t.Fatal("no node")
	}
	for _, doc := range []string{`{"` + strings.Repeat("é", 5000) + `":1}`, `{"q":"` + strings.Repeat("é", 5000) + `"}`, `{"p":[` + strings.Repeat("1,", 5000) + `1]}`, `{}`,
		`{"p":"` + strings.Repeat("é", 5000)} {
		v := s.Check([]byte(doc))
		if v == nil {
			t.Fatalf("%.40s: accepted", doc)
		}
		if len(v.Got) > maxGot || len(v.Expected) > maxExpected || len(v.Message) > 3*maxGot+maxExpected {
			t.Errorf("%.40s: %d bytes got, %d expected, %d message", doc, len(v.Got), len(v.Expected), len(v.Message))
		}
		if !bytes.Equal([]byte(v.Got), bytes.ToValidUTF8([]byte(v.Got), nil)) {
			t.Errorf("%.40s: Got is cut within a character: %q", doc, v.Got)
		}
		if v.Expected != nil && !json.Valid(v.Expected) {
			t.Errorf("%.40s: Expected is not JSON: %s", doc, v.Expected)
		}
	}
}

func TestCheckDoesNotAllocate(t *testing.T) {
	s := mustCompile(t, benchSchema)
	doc := []byte(benchDoc)
	if n := testing.AllocsPerRun(100, func() {
		if s.Check(doc) != nil {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations in a check", n)
	}
	buf := make([]byte, 0, 2*len(doc))
	if n := testing.AllocsPerRun(100, func() {
		if _, err := jsontext.Canonical(buf, doc); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations in Canonical", n)
	}
}

// Canonical is the same for every way to write a value, is a fixed point, and
// means what the document meant.
func TestCanonicalIsOneForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue(3).Draw(t, "value")
		a, b := write(t, v), write(t, v)
		ca, err := jsontext.Canonical(nil, []byte(a))
		if err != nil {
			t.Fatalf("%s: %v", a, err)
		}
		cb, err := jsontext.Canonical(nil, []byte(b))
		if err != nil || !bytes.Equal(ca, cb) {
			t.Fatalf("%s and %s are the same, but %s and %s (%v)", a, b, ca, cb, err)
		}
		if again, err := jsontext.Canonical(nil, ca); err != nil || !bytes.Equal(again, ca) {
			t.Fatalf("%s again is %s (%v)", ca, again, err)
		}
		if d, err := decodeNumbers(ca); err != nil || !equalValues(d, v) {
			t.Fatalf("%s became %s (%v)", a, ca, err)
		}
	})
}

// A node and the library give the same verdict, for every schema that has a node.
func TestNodeAgreesWithLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := write(t, anySchema(3).Draw(t, "schema"))
		s, err := Compile([]byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if s.node == nil {
			t.Fatalf("%s: left to the library", raw)
		}
		f, err := compileLibrary([]byte(raw))
		if err != nil {
			t.Fatalf("%s: the library: %v", raw, err)
		}
		for range 8 {
			doc := write(t, docFor([]byte(raw), 3).Draw(t, "document"))
			agree(t, s, f, []byte(doc))
		}
	})
}

type failer interface {
	Fatalf(string, ...any)
}

// agree compares the verdict of the node with the verdict of the library.
func agree(t failer, s *Schema, l *library, doc []byte) {
	v := s.Check(doc)
	if jsontext.Check(doc, jsontext.Strict) != nil {
		if v == nil {
			t.Fatalf("%s: %q is not JSON, but accepted", s.raw, doc)
		}
		return
	}
	r := jsontext.NewReader(doc)
	if accepted, bad := s.node.accepts(&r), l.check(doc); accepted != (bad == nil) {
		t.Fatalf("schema   %s\ndocument %s\naccepted on its bytes: %v\nlibrary  %+v", s.raw, doc, accepted, bad)
	}
	if v == nil {
		return
	}
	if v.Expected != nil && !json.Valid(v.Expected) {
		t.Fatalf("%s: expected %s is not JSON", s.raw, v.Expected)
	}
	if at := valueAt(doc, pointerPath(v.Where)); at == nil {
		t.Fatalf("schema %s\ndocument %s\nthere is nothing at %q", s.raw, doc, v.Where)
	}
}

func pointerPath(p string) []string {
	if p == "" {
		return nil
	}
	var path []string
	for _, s := range strings.Split(p[1:], "/") {
		path = append(path, strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~"))
	}
	return path
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(benchSchema), []byte(benchDoc))
	f.Add([]byte(`{"type":["integer","null"],"minimum":1.5}`), []byte(`2.0`))
	f.Add([]byte(`{"anyOf":[{"minItems":1,"items":{"enum":[1,"a"]}},{"const":{"b":1}}]}`), []byte(`{"b":1e0}`))
	f.Add([]byte(`{"minLength":2,"pattern":"^a"}`), []byte(`"\u0061\ud83d\ude00"`))
	f.Add([]byte(`{"$ref":"#/$defs/a","$defs":{"a":{"type":"array"}}}`), []byte(`[[[]]]`))
	f.Fuzz(func(t *testing.T, raw, doc []byte) {
		if len(raw) > 2000 || len(doc) > 2000 {
			return
		}
		s, err := Compile(raw)
		if err != nil {
			return
		}
		if s.node == nil {
			s.Check(doc)
			return
		}
		full, err := compileLibrary(raw)
		if err != nil {
			t.Fatalf("%q: only the bytes take it: %v", raw, err)
		}
		agree(t, s, full, doc)
	})
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{benchDoc, `{"b":[1.0,-0,1e2],"a":"\u0041\n"}`, `[[],{},""]`, `{"a":1,"a":2}`, "1e-1000", `"\ud800"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		out, err := jsontext.Canonical(nil, doc)
		if (err == nil) != (jsontext.Check(doc, jsontext.Strict) == nil) {
			t.Fatalf("%q: Canonical %v, Valid %v", doc, err, jsontext.Check(doc, jsontext.Strict))
		}
		if err != nil {
			return
		}
		if !json.Valid(doc) {
			t.Fatalf("%q is not JSON to encoding/json", doc)
		}
		if again, err := jsontext.Canonical(nil, out); err != nil || !bytes.Equal(again, out) {
			t.Fatalf("%q: %q, then %q (%v)", doc, out, again, err)
		}
		a, errA := decodeNumbers(doc)
		b, errB := decodeNumbers(out)
		if errA != nil || errB != nil || !equalValues(a, b) {
			t.Fatalf("%q and %q differ (%v, %v)", doc, out, errA, errB)
		}
	})
}

const (
	benchSchema = `{"type":"object","properties":{"path":{"type":"string","minLength":1},"line":{"type":"integer","minimum":1},"mode":{"enum":["read","write"]}},"required":["path","line"],"additionalProperties":false}`
	benchDoc    = `{"path":"internal/schema/fast.go","line":42,"mode":"read"}`
)
