package schema

import (
	"encoding/json"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type colour string

type base0 struct {
	ID   string `json:"id"`
	Kept int    `json:"kept"`
}

type everything struct {
	base0
	Text    string             `json:"text" description:"what to say"`
	Count   int                `json:"count,omitempty" jsonschema:"minimum=1,maximum=10"`
	Small   int8               `json:"small,omitzero"`
	Byte    uint8              `json:"byte,omitempty"`
	Share   float64            `json:"share,omitempty"`
	Colour  colour             `json:"colour,omitempty" jsonschema:"enum=red|blue"`
	Maybe   *string            `json:"maybe" jsonschema:"a name, if there is one"`
	Choice  *colour            `json:"choice" jsonschema:"enum=red|blue"`
	List    []int              `json:"list,omitempty" jsonschema:"maxItems=3"`
	Pair    [2]bool            `json:"pair,omitempty"`
	Blob    []byte             `json:"blob,omitempty"`
	Map     map[string]uint16  `json:"map,omitempty"`
	When    time.Time          `json:"when,omitzero"`
	Raw     json.RawMessage    `json:"raw,omitempty"`
	Any     any                `json:"any,omitempty"`
	Big     *big.Int           `json:"big,omitempty"`
	Quoted  int                `json:"quoted,string,omitempty"`
	Nested  struct{ A, B int } `json:"nested,omitzero"`
	Kept    string             `json:"kept"` // stands before the one that is embedded
	Skipped chan int           `json:"-"`
	hidden  int
}

func TestFromType(t *testing.T) {
	_ = everything{}.hidden
	got, err := FromType(reflect.TypeFor[everything]())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"object","properties":{"id":{"type":"string"},"kept":{"type":"string"},"text":{"type":"string","description":"what to say"},
		"count":{"type":"integer","minimum":1,"maximum":10},"small":{"type":"integer","minimum":-128,"maximum":127},"byte":{"type":"integer","minimum":0,"maximum":255},
		"share":{"type":"number"},"colour":{"type":"string","enum":["red","blue"]},"maybe":{"type":["string","null"],"description":"a name, if there is one"},
		"choice":{"anyOf":[{"type":"string","enum":["red","blue"]},{"type":"null"}]},
		"list":{"type":"array","items":{"type":"integer"},"maxItems":3},"pair":{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2},
		"blob":{"type":"string","contentEncoding":"base64"},"map":{"type":"object","additionalProperties":{"type":"integer","minimum":0,"maximum":65535}},
		"when":{"type":"string","format":"date-time"},"raw":{},"any":{},"big":{},"quoted":{"type":"string"},
		"nested":{"type":"object","properties":{"A":{"type":"integer"},"B":{"type":"integer"}},"required":["A","B"],"additionalProperties":false}},
		"required":["id","kept","text"],"additionalProperties":false}`
	if !sameJSON(t, got, []byte(want)) {
		t.Errorf("got  %s", got)
	}
	if s := mustCompile(t, string(got)); s.node == nil {
		t.Error("it has no node")
	}
}

type loop struct {
	Next *loop `json:"next"`
}

func TestFromTypeRefuses(t *testing.T) {
	for want, typ := range map[string]reflect.Type{
		"no type":         nil,
		"contains itself": reflect.TypeFor[loop](),
		"kind chan":       reflect.TypeFor[struct{ C chan int }](),
		"kind func":       reflect.TypeFor[[]func()](),
		"string keys":     reflect.TypeFor[map[int]string](),
		"has methods":     reflect.TypeFor[struct{ R interface{ Read() } }](),
		"unknown keyword": reflect.TypeFor[struct {
			A int `jsonschema:"minimun=1"`
		}](),
		"expected a number": reflect.TypeFor[struct {
			A int `jsonschema:"minimum=x"`
		}](),
		"expected a value of type int": reflect.TypeFor[struct {
			A int `jsonschema:"enum=x|y"`
		}](),
		"two fields": reflect.StructOf([]reflect.StructField{
			{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"x"`},
			{Name: "B", Type: reflect.TypeFor[int](), Tag: `json:"x"`}}),
	} {
		if got, err := FromType(typ); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %s, %v; want %q", typ, got, err, want)
		}
	}
}

// What the schema of a type accepts, encoding/json reads into the type, for
// the kinds whose range a schema can tell.
func TestFromTypeFitsTheDecoder(t *testing.T) {
	type small struct {
		A int8            `json:"a"`
		B *uint16         `json:"b"`
		C []string        `json:"c,omitempty"`
		D map[string]bool `json:"d,omitempty"`
		E [2]uint8        `json:"e,omitempty"`
		F float64         `json:"f,omitempty"`
	}
	raw, err := FromType(reflect.TypeFor[small]())
	if err != nil {
		t.Fatal(err)
	}
	s := mustCompile(t, string(raw))
	value := rapid.OneOf(rapid.Just(any(nil)), rapid.Map(rapid.OneOf(rapid.IntRange(-130, 130), rapid.IntRange(-1, 70000)), func(i int) any { return i }),
		rapid.SampledFrom([]any{true, "x", []string{"a"}, []int{1, 2}, []int{1, 256}, map[string]bool{"k": true}, map[string]int{"k": 1}, 1.5}))
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		doc := map[string]any{"a": 1, "b": 2, "c": []string{"x"}, "d": map[string]bool{"k": true}, "e": []int{1, 255}, "f": 1.5}
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			k := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "key")
			if doc[k] = value.Draw(t, "value"); rapid.Bool().Draw(t, "without") {
				delete(doc, k)
			}
		}
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if s.Check(b) != nil {
			return
		}
		accepted++
		var v small
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatalf("%s is accepted, but %v", b, err)
		}
	})
	if accepted == 0 {
		t.Error("no document was accepted: the test shows nothing")
	}
}
