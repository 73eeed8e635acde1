// Mutants that were made on purpose, and the test that killed each:
//
//	a field of a part left out of its function (Answer.Took)     TestEveryField, TestRoundTrip
//	two fields of a part exchanged in order                      TestEveryField
//	zero limits left out like other zeros                        TestRoundTrip
//	an unknown unit stepped over instead of refused              TestRefused
//	fields accepted out of order                                 TestRefused
//	take without a look at what is left                          FuzzRecord's seeds
//	a word exchanged with another                                TestFrozen
//	kind left out of the sum                                     TestSum
//	a payload left out of Payloads (Fork.State)                  TestPayloads
//	writing sets the record's attempt                            TestEveryField (the record is compared after writing)
package format_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/journal/format"
	"github.com/kern-run/kern/internal/leaktest"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var update = flag.Bool("update", false, "rewrite testdata")

// again writes a record and reads it.
func again(r *abi.Record) (*abi.Record, error) {
	e := format.NewEntry(r, nil)
	return e.Record()
}

// fields calls fn with every field of v that holds a value of its own, through
// pointers and structs, with its path. Limits and usage are such values.
func fields(v reflect.Value, path string, fn func(path string, v reflect.Value)) {
	switch v.Interface().(type) {
	case abi.Limits, abi.Usage, abi.Hash, abi.Key, []abi.Blob:
		fn(path, v)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fields(v.Elem(), path, fn)
	case reflect.Struct:
		for i := range v.NumField() {
			fields(v.Field(i), path+"."+v.Type().Field(i).Name, fn)
		}
	default:
		fn(path, v)
	}
}

// fill draws a value for a field. A type that it does not know fails the test:
// then the format does not know it either.
func fill(t *rapid.T, path string, v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *abi.Limits:
		for u := range abi.AllUnits {
			if rapid.Bool().Draw(t, path) {
				p.Set(u, rapid.Int64().Draw(t, path))
			}
		}
		return
	case *abi.Usage:
		for i := range p {
			p[i] = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, path)
		}
		return
	case *abi.Hash:
		copy(p[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, path))
		return
	case *abi.Key:
		copy(p[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, path))
		return
	case *[]abi.Hash: // none and empty are one
		for i := range rapid.IntRange(0, 3).Draw(t, path) {
			*p = append(*p, abi.HashOf([]byte{byte(i), rapid.Byte().Draw(t, path)}))
		}
		return
	case *[]abi.Pid:
		for i := range rapid.IntRange(0, 3).Draw(t, path) {
			*p = append(*p, abi.Pid(i))
		}
		return
	case *[]abi.Sum:
		for i := range rapid.IntRange(0, 3).Draw(t, path) {
			*p = append(*p, abi.Sum{Account: strings.Repeat("a", i), Used: abi.Usage{abi.Money: rapid.Int64Range(0, 1<<60).Draw(t, path)}})
		}
		return
	case *[]abi.Spent:
		for i := range rapid.IntRange(0, 3).Draw(t, path) {
			*p = append(*p, abi.Spent{Hour: int64(i), Model: strings.Repeat("m", i), Usage: abi.Usage{abi.Money: rapid.Int64Range(0, 1<<60).Draw(t, path)}})
		}
		return
	case *[]abi.Blob: // not part of what is written
		return
	case *[]byte:
		*p = rapid.OneOf(rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.SliceOf(rapid.Byte())).Draw(t, path)
		return
	case *json.RawMessage:
		*p = rapid.OneOf(rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.SliceOf(rapid.Byte())).Draw(t, path)
		return
	case *[]string:
		*p = rapid.OneOf(rapid.Just([]string(nil)), rapid.Just([]string{}), rapid.SliceOf(text)).Draw(t, path)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text.Draw(t, path))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, path))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 2)).Draw(t, path))
	case reflect.Uint64:
		v.SetUint(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 2)).Draw(t, path))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Byte().Draw(t, path)))
	default:
		t.Fatalf("%s is a %s, which this test cannot fill", path, v.Type())
	}
}

var text = rapid.OneOf(rapid.SampledFrom([]string{"", "ok", "tool", "LIMIT_MONEY", "oK", "a"}), rapid.String())

// draw makes a record of which some parts are filled, every field of them.
func draw(t *rapid.T) *abi.Record {
	r := new(abi.Record)
	fields(reflect.ValueOf(r).Elem(), "Record", func(path string, v reflect.Value) { fill(t, path, v) })
	drop(t, reflect.ValueOf(r).Elem(), "Record")
	if d := r.Intent; d != nil && rapid.Bool().Draw(t, "a plain payload") {
		d.Args, _ = abi.NewData(d.Args.Bytes)
	}
	return r
}

// drop takes some pointers away.
func drop(t *rapid.T, v reflect.Value, path string) {
	for i := range v.NumField() {
		f, name := v.Field(i), path+"."+v.Type().Field(i).Name
		switch {
		case f.Kind() == reflect.Pointer && rapid.IntRange(0, 2).Draw(t, "drop "+name) == 0:
			f.SetZero()
		case f.Kind() == reflect.Pointer && f.Elem().Kind() == reflect.Struct && f.Type() != reflect.TypeFor[*abi.Limits]():
			drop(t, f.Elem(), name)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := draw(t)
		got, err := again(r)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, got, r)
		}
		// The same from entries that stand one after the other.
		e := format.NewEntry(r, []byte("before"))
		list, err := format.ReadEntries(e.Append(e.Append(nil)))
		if err != nil || len(list) != 2 {
			t.Fatalf("%d entries, %v", len(list), err)
		}
		if got, err = list[1].Record(); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("behind another: %v\n got %+v\nwant %+v", err, got, r)
		}
	})
}

// TestEveryField sets one field of a record after the other and nothing else,
// so that a field which the format does not know is named.
func TestEveryField(t *testing.T) {
	var paths []string
	fields(reflect.ValueOf(new(abi.Record)).Elem(), "Record", func(path string, _ reflect.Value) { paths = append(paths, path) })
	if len(paths) < 80 {
		t.Fatalf("only %d fields were found", len(paths))
	}
	for _, path := range paths {
		if path == "Record.Blobs" {
			continue
		}
		r := new(abi.Record)
		at := reflect.ValueOf(r).Elem()
		for _, name := range strings.Split(path, ".")[1:] {
			if at.Kind() == reflect.Pointer {
				at.Set(reflect.New(at.Type().Elem()))
				at = at.Elem()
			}
			at = at.FieldByName(name)
		}
		if at.Kind() == reflect.Pointer {
			at.Set(reflect.New(at.Type().Elem()))
			at = at.Elem()
		}
		setOne(t, path, at)
		before := fmt.Sprintf("%+v", deep(r))
		got, err := again(r)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s does not come back (%v): add it to its function in parts.go, with a new number", path, err)
		}
		if after := fmt.Sprintf("%+v", deep(r)); after != before {
			t.Errorf("%s: writing changed the record from %s to %s", path, before, after)
		}
	}
}

// deep is a record as something that prints all of its parts.
func deep(r *abi.Record) any {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return string(b)
}

func setOne(t *testing.T, path string, v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *abi.Limits:
		p.Set(abi.Depth, 0)
	case *abi.Usage:
		p[len(p)-1] = 5
	case *abi.Hash:
		p[31] = 1
	case *abi.Key:
		p[15] = 1
	case *[]byte:
		*p = []byte{}
	case *json.RawMessage:
		*p = json.RawMessage{}
	case *[]string:
		*p = []string{"", "x"}
	case *[]abi.Hash:
		*p = []abi.Hash{{31: 1}, {2}}
	case *[]abi.Pid:
		*p = []abi.Pid{3, 1}
	case *[]abi.Sum:
		*p = []abi.Sum{{Account: "team", Used: abi.Usage{abi.Money: 5}}}
	case *[]abi.Spent:
		*p = []abi.Spent{{Hour: 7, Account: "team", Usage: abi.Usage{abi.Money: 5}}}
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString("something")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(-3)
		case reflect.Uint64:
			v.SetUint(math.MaxUint64)
		case reflect.Uint8:
			v.SetUint(200)
		default:
			t.Fatalf("%s is a %s, which this test cannot set", path, v.Type())
		}
	}
}

func TestPayloads(t *testing.T) {
	r := new(abi.Record)
	want := map[int64]string{}
	fields(reflect.ValueOf(r).Elem(), "Record", func(path string, v reflect.Value) {
		if name, ok := strings.CutSuffix(path, ".Size"); ok {
			v.SetInt(int64(len(want) + 1))
			want[int64(len(want)+1)] = name
		}
	})
	for d := range r.Payloads() {
		delete(want, d.Size)
	}
	for _, name := range want {
		t.Errorf("%s is not among the payloads", name)
	}
}

func TestSum(t *testing.T) {
	base := format.Entry{Pid: 1, N: 2, Time: 3, Kind: 4, Call: 5, Row: "ab", Tool: "c", Body: []byte("body")}
	sums := map[format.Sum]string{base.Sum(format.Sum{}): "nothing changed"}
	for what, change := range map[string]func(*format.Entry){
		"pid":                func(e *format.Entry) { e.Pid = 2 },
		"n":                  func(e *format.Entry) { e.N = 3 },
		"time":               func(e *format.Entry) { e.Time = 4 },
		"kind":               func(e *format.Entry) { e.Kind = 5 },
		"call":               func(e *format.Entry) { e.Call = 6 },
		"row":                func(e *format.Entry) { e.Row = "ac" },
		"tool":               func(e *format.Entry) { e.Tool = "d" },
		"row and tool moved": func(e *format.Entry) { e.Row, e.Tool = "a", "bc" },
		"tool and body":      func(e *format.Entry) { e.Tool, e.Body = "cb", []byte("ody") },
		"body":               func(e *format.Entry) { e.Body = []byte("bodz") },
		"body longer":        func(e *format.Entry) { e.Body = []byte("body\x00") },
	} {
		e := base
		change(&e)
		if other, ok := sums[e.Sum(format.Sum{})]; ok {
			t.Errorf("%s has the sum of: %s", what, other)
		}
		sums[e.Sum(format.Sum{})] = what
	}
	if other, ok := sums[base.Sum(format.Sum{1})]; ok {
		t.Errorf("after another record it has the sum of: %s", other)
	}
}

// samples are records whose bytes are frozen in testdata/records.txt.
func samples() []abi.Record {
	var limits abi.Limits
	limits.Set(abi.Money, 2_000_000_000)
	limits.Set(abi.Steps, 0)
	limits.Set(abi.Context, 100_000)
	priority := 0
	small, _ := abi.NewData([]byte(`{"text":"hi"}`))
	large, _ := abi.NewData(bytes.Repeat([]byte("large "), 100))
	failure := &abi.Error{Code: abi.InvalidArguments, Message: "no", Where: "/text", Expected: json.RawMessage(`{}`), Got: "5", Hint: "send a text"}
	return []abi.Record{
		{Pid: 7, N: 1, Time: 1_790_000_000_000_000_000, Kind: abi.KindSpawned, Spawn: &abi.Spawn{Name: "writer", Parent: 3, ParentCall: 9,
			Account: "team", Depth: 1, Priority: 10, Limits: limits, Rows: []string{"model", "tool", "own"}, Program: large,
			Watchdog: abi.Watchdog{Profile: "strict", Repeat: 3}, Task: small, TaskTokens: 4, Fork: &abi.Fork{Pid: 2, At: 77, State: large}}},
		{Pid: 7, N: 2, Kind: abi.KindBegan, Call: 1, Intent: &abi.Intent{Row: "model", Key: abi.Key{1, 2, 3}, Effect: abi.Irreversible, Within: 4,
			For: "call_1", Attempt: 1, Reserve: abi.Usage{abi.Money: 5_000, abi.Tokens: 300}, Granted: 4096, Price: abi.Price{Input: 3, Output: 15, CacheWrite: 1},
			Say: small, SayTokens: 5}},
		{Pid: 7, N: 3, Kind: abi.KindEnded, Call: 1, Answer: &abi.Answer{Outcome: abi.OK, Value: large, Again: true, Attempt: 2, Usage: abi.Usage{abi.Money: -1},
			Result: abi.Key{4}, Digest: abi.Key{5}, Page: &abi.Page{Role: "assistant", Tokens: 9, ID: "x"}, Warning: failure, First: 123, Took: 8}},
		{Pid: 7, N: 4, Kind: abi.KindRefused, Call: 2, Intent: &abi.Intent{Row: "tool", Tool: "echo", Args: small, Effect: abi.Pure},
			Answer: &abi.Answer{Outcome: abi.Refused, Err: failure}},
		{Pid: 7, N: 5, Kind: abi.KindMailed, Note: &abi.Note{Signal: abi.Term, From: "4", Body: small, Yes: true}},
		{Pid: 0, N: 1, Kind: abi.KindAccount, Change: &abi.Change{Account: "team", Limits: &limits, Priority: &priority, By: "someone"}},
		{Pid: 7, N: 6, Kind: abi.KindExited, Exit: &abi.ExitInfo{Exit: abi.ExitLimit, Reason: "money", Code: abi.LimitMoney, Output: small, Err: failure}},
		{Pid: 7, N: 7, Kind: abi.KindSignaled},
		{Pid: 7, N: 8, Kind: abi.KindEnded, Answer: &abi.Answer{Value: abi.Data{Bytes: []byte("a"), Size: 5, Hash: abi.Hash{1}}}},
		{Pid: 7, N: 9, Kind: abi.KindEnded, Answer: &abi.Answer{Outcome: abi.OK, Digest: abi.Key{6}, Commit: abi.Hash{7, 31: 8}, Rolled: true}},
	}
}

// TestFrozen compares what is on disk with what earlier versions wrote: it must
// stay readable, and nothing in it may change its meaning. Lines are added to
// the file, with -update; a line that changes breaks every journal there is.
func TestFrozen(t *testing.T) {
	var b strings.Builder
	for _, r := range samples() {
		e := format.NewEntry(&r, nil)
		fmt.Fprintf(&b, "%s %s\n", r.Kind, hex.EncodeToString(e.Append(nil)))
	}
	const file = "testdata/records.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	frozen, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(frozen) {
		t.Errorf("the bytes of a record are not those of %s:\n%s", file, b.String())
	}
	for i, line := range strings.Split(strings.TrimSpace(string(frozen)), "\n") {
		_, code, _ := strings.Cut(line, " ")
		raw, err := hex.DecodeString(code)
		if err != nil {
			t.Fatal(err)
		}
		list, err := format.ReadEntries(raw)
		if err != nil || len(list) != 1 {
			t.Fatalf("line %d: %d entries, %v", i+1, len(list), err)
		}
		r, err := list[0].Record()
		if err != nil || !reflect.DeepEqual(*r, samples()[i]) {
			t.Errorf("line %d: %v\n got %+v\nwant %+v", i+1, err, r, samples()[i])
		}
	}
}

// TestWords: every word keeps its number.
func TestWords(t *testing.T) {
	const file = "testdata/words.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(format.Words(), "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	frozen, now := strings.Split(string(b), "\n"), format.Words()
	if len(now) < len(frozen) {
		t.Fatalf("%d words, and there were %d", len(now), len(frozen))
	}
	for i, w := range frozen {
		if now[i] != w {
			t.Errorf("word %d was %q and is %q", i, w, now[i])
		}
	}
	if len(now) > len(frozen) {
		t.Errorf("%v: run the test with -update", now[len(frozen):])
	}
	seen := map[string]bool{}
	for _, w := range now {
		if seen[w] {
			t.Errorf("%q is there twice", w)
		}
		seen[w] = true
	}
}

// part is a body with one part that holds the fields given.
func part(number byte, fields ...byte) []byte {
	return append(append([]byte{number<<3 | 3}, fields...), 0)
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		body []byte
		want string // in the error; empty: readable
	}{
		{"nothing", nil, ""},
		{"an empty part", part(3), ""},
		{"an unknown field", part(5, 30<<3&0x7f|0x80, 1, 5), ""},
		{"an unknown part", part(9, 1<<3, 7), ""},
		{"an unknown group in an unknown part", part(9, part(2, 1<<3|5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)...), ""},
		{"a later version", []byte{0, 2, 3}, "later version"},
		{"fields out of order", part(3, 5<<3, 1, 4<<3, 1), "out of order"},
		{"a field twice", part(3, 5<<3, 1, 5<<3, 1), "out of order"},
		{"a part that does not end", []byte{3<<3 | 3, 5 << 3, 1}, "too early"},
		{"a length beyond the end", part(5, 1<<3|2, 100), "too early"},
		{"a number beyond 64 bits", part(3, 5<<3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1), "too early"},
		{"a type that does not fit", part(3, 2<<3|5), "type"},
		{"an unknown type", part(9, 1<<3|7), "unknown type"},
		{"an unknown word", part(4, 1<<3, 255, 127), "word"},
		{"an unknown unit", part(3, 6<<3|6, 128, 128, 128, 1, 2), "knows"},
		{"a field number zero", []byte{4}, "field number"},
		{"a huge field number", []byte{0x80, 0x80, 0x80, 0x80, 0x80, 1}, "field number"},
		{"groups in groups", bytes.Repeat([]byte{9<<3 | 3}, 40), "too deep"},
		{"a short hash in a whole payload", part(3, part(2, 3<<3|2, 1, 1)...), "hash"},
		{"a list with a gap", part(1, part(8, 2<<3, 1)...), "list"},
	} {
		e := format.Entry{Body: c.body}
		_, err := e.Record()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	e := format.Entry{Row: "tool"}
	if _, err := e.Record(); err == nil {
		t.Error("a row without an intent was accepted")
	}
}

// FuzzRecord reads what nobody wrote. It must not panic; and what can be read
// can be written and read again.
func FuzzRecord(f *testing.F) {
	for _, r := range samples() {
		e := format.NewEntry(&r, nil)
		f.Add(e.Body)
		for i := range e.Body {
			f.Add(e.Body[:i])
		}
		f.Add(e.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if list, err := format.ReadEntries(b); err == nil {
			var again []byte
			for i := range list {
				again = list[i].Append(again)
			}
			if second, err := format.ReadEntries(again); err != nil || !reflect.DeepEqual(list, second) {
				t.Fatalf("entries: %v\n%+v\n%+v", err, list, second)
			}
		}
		e := format.Entry{Body: b}
		r, err := e.Record()
		if err != nil {
			return
		}
		second, err := again(r)
		if err != nil || !reflect.DeepEqual(r, second) {
			t.Fatalf("%v\n got %+v\nthen %+v", err, r, second)
		}
	})
}
