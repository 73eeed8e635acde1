package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"
)

// object is a JSON object with an order. Values are nil, bool, json.Number,
// string, []any and object.
type object []pair

type pair struct {
	key string
	val any
}

var (
	someNames = rapid.SampledFrom([]string{"a", "b", "c", "id", "a/b", "~x", "é", "", `q"`})
	texts     = rapid.SampledFrom([]string{"", "a", "ab", "abc", "é", "日本", "a/b", "x y", "\U0001F600", "\n\t", `"q"`, `\`, "<&>", "0"})
	numerals  = rapid.SampledFrom([]string{"0", "1", "2", "3", "-1", "1.5", "0.5", "2.25", "100", "1000000007", "123456789012345678901234567890", "0.001", "-2.75", "99999999999999999999.5"})
)

func anyValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		most := 6
		if depth == 0 {
			most = 4
		}
		switch rapid.IntRange(0, most).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return json.Number(numerals.Draw(t, "number"))
		case 3, 4:
			return texts.Draw(t, "string")
		case 5:
			return rapid.SliceOfN(anyValue(depth-1), 0, 4).Draw(t, "array")
		}
		return anyObject(t, depth, someNames)
	})
}

func anyObject(t *rapid.T, depth int, someNames *rapid.Generator[string]) object {
	var o object
	most := 5
	if rapid.IntRange(0, 20).Draw(t, "large") == 0 {
		most = 40
		someNames = rapid.Map(rapid.IntRange(0, 60), func(i int) string { return fmt.Sprintf("k%d", i*7919%61) })
	}
	for _, k := range rapid.SliceOfNDistinct(someNames, 0, most, rapid.ID[string]).Draw(t, "keys") {
		o = append(o, pair{k, anyValue(depth-1).Draw(t, k)})
	}
	return o
}

// anySchema draws a schema that has a node.
func anySchema(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rapid.IntRange(0, 12).Draw(t, "bool") == 0 {
			return rapid.Bool().Draw(t, "schema")
		}
		var s object
		may := func(k string, in int, v func() any) {
			if rapid.IntRange(0, in).Draw(t, k+"?") == 0 {
				s = append(s, pair{k, v()})
			}
		}
		size := func() any { return json.Number(strconv.Itoa(rapid.IntRange(0, 3).Draw(t, "size"))) }
		num := func() any { return json.Number(numerals.Draw(t, "bound")) }
		types := rapid.SampledFrom([]any{"null", "boolean", "integer", "number", "string", "array", "object"})
		may("type", 1, func() any {
			if rapid.Bool().Draw(t, "one") {
				return types.Draw(t, "type")
			}
			return rapid.SliceOfNDistinct(types, 1, 3, rapid.ID[any]).Draw(t, "types")
		})
		may("minLength", 6, size)
		may("maxLength", 6, size)
		may("minItems", 6, size)
		may("maxItems", 6, size)
		may("minProperties", 8, size)
		may("maxProperties", 8, size)
		may("minimum", 6, num)
		may("maximum", 6, num)
		may("exclusiveMinimum", 8, num)
		may("exclusiveMaximum", 8, num)
		may("pattern", 8, func() any { return rapid.SampledFrom([]string{"^a", "b$", "é", `\n`, "."}).Draw(t, "pattern") })
		if rapid.Bool().Draw(t, "which") {
			may("enum", 5, func() any { return rapid.SliceOfN(anyValue(1), 0, 4).Draw(t, "enum") })
		} else {
			may("const", 8, func() any { return anyValue(1).Draw(t, "const") })
		}
		may("description", 9, func() any { return texts.Draw(t, "description") })
		if depth > 0 {
			schemas := anySchema(depth - 1)
			may("properties", 1, func() any {
				var o object
				for _, k := range rapid.SliceOfNDistinct(someNames, 0, 4, rapid.ID[string]).Draw(t, "keys") {
					o = append(o, pair{k, schemas.Draw(t, k)})
				}
				return o
			})
			may("required", 3, func() any {
				r := []any{}
				for _, k := range rapid.SliceOfNDistinct(someNames, 0, 2, rapid.ID[string]).Draw(t, "required") {
					r = append(r, k)
				}
				return r
			})
			may("additionalProperties", 2, func() any {
				if rapid.Bool().Draw(t, "closed") {
					return false
				}
				return schemas.Draw(t, "additional")
			})
			may("items", 2, func() any { return schemas.Draw(t, "items") })
			may("anyOf", 5, func() any { return rapid.SliceOfN(schemas, 1, 3).Draw(t, "anyOf") })
		}
		return s
	})
}

// docFor draws a document that has a chance to fit: mostly values of the
// declared types, declared keys, values from enum.
func docFor(raw []byte, depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		var kw map[string]json.RawMessage
		if depth < 0 || json.Unmarshal(raw, &kw) != nil || rapid.IntRange(0, 9).Draw(t, "any") == 0 {
			return anyValue(2).Draw(t, "value")
		}
		var alts []json.RawMessage
		if json.Unmarshal(kw["anyOf"], &alts) == nil && rapid.Bool().Draw(t, "branch") {
			return docFor(rapid.SampledFrom(alts).Draw(t, "alternative"), depth).Draw(t, "value")
		}
		var listed []json.RawMessage
		if json.Unmarshal(kw["enum"], &listed) != nil && kw["const"] != nil {
			listed = []json.RawMessage{kw["const"]}
		}
		if len(listed) > 0 && rapid.IntRange(0, 3).Draw(t, "listed") > 0 {
			return mustDecode(rapid.SampledFrom(listed).Draw(t, "value"))
		}
		var types []string
		var one string
		if json.Unmarshal(kw["type"], &one) == nil {
			types = []string{one}
		} else if json.Unmarshal(kw["type"], &types) != nil {
			types = []string{"object", "array", "string", "number"}
		}
		switch rapid.SampledFrom(types).Draw(t, "type") {
		case "object":
			return objectFor(t, kw, depth)
		case "array":
			return rapid.SliceOfN(docFor(kw["items"], depth-1), 0, 4).Draw(t, "array")
		case "string":
			return texts.Draw(t, "string")
		case "integer", "number":
			return json.Number(numerals.Draw(t, "number"))
		case "boolean":
			return rapid.Bool().Draw(t, "boolean")
		}
		return nil
	})
}

func objectFor(t *rapid.T, kw map[string]json.RawMessage, depth int) object {
	var o object
	var props map[string]json.RawMessage
	_ = json.Unmarshal(kw["properties"], &props) // absent is fine
	var required []string
	_ = json.Unmarshal(kw["required"], &required) // as above
	for _, k := range rapid.SliceOfNDistinct(someNames, 0, 4, rapid.ID[string]).Draw(t, "keys") {
		o = append(o, pair{k, nil})
	}
	for _, k := range required {
		if !o.has(k) && rapid.IntRange(0, 5).Draw(t, "leave out") > 0 {
			o = append(o, pair{k, nil})
		}
	}
	for i := range o {
		s, ok := props[o[i].key]
		if !ok {
			s = kw["additionalProperties"]
		}
		o[i].val = docFor(s, depth-1).Draw(t, o[i].key)
	}
	return o
}

func (o object) has(k string) bool {
	for _, p := range o {
		if p.key == k {
			return true
		}
	}
	return false
}

// write writes v in one of its many forms.
func write(t *rapid.T, v any) string {
	var b strings.Builder
	writeTo(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "form"), 0)), &b, v)
	return b.String()
}

func writeTo(r *rand.Rand, b *strings.Builder, v any) {
	space := func() {
		if r.IntN(10) == 0 {
			b.WriteString([]string{" ", "\n", "\t "}[r.IntN(3)])
		}
	}
	space()
	defer space()
	switch v := v.(type) {
	case json.Number:
		b.WriteString(otherNumber(r, string(v)))
	case string:
		b.WriteString(otherString(r, v))
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeTo(r, b, e)
		}
		b.WriteByte(']')
	case object:
		b.WriteByte('{')
		v = slices.Clone(v)
		r.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
		for i, p := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			b.WriteString(otherString(r, p.key))
			space()
			b.WriteByte(':')
			writeTo(r, b, p.val)
		}
		b.WriteByte('}')
	default:
		j, _ := json.Marshal(v) // null, true, false
		b.Write(j)
	}
}

// otherNumber writes n in another form of the same value.
func otherNumber(r *rand.Rand, n string) string {
	switch r.IntN(6) {
	case 0:
		if !strings.Contains(n, ".") {
			return n + ".00"
		}
		return n + "0"
	case 1:
		return n + "e0"
	case 2:
		if !strings.Contains(n, ".") && n != "0" {
			return n + "000E-3"
		}
	case 3:
		if n == "0" {
			return "-0.0"
		}
	}
	return n
}

func otherString(r *rand.Rand, s string) string {
	b := []byte{'"'}
	for _, c := range s {
		esc := r.IntN(6) == 0
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n' && !esc:
			b = append(b, '\\', 'n')
		case c == '/' && esc:
			b = append(b, '\\', '/')
		case c > 0xffff && esc:
			c -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04X`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		case c < ' ' || esc && c <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, string(c)...)
		}
	}
	return string(append(b, '"'))
}

func mustDecode(raw []byte) any {
	v, err := decodeNumbers(raw)
	if err != nil {
		panic(err)
	}
	return v
}

// decodeNumbers decodes with the digits of numerals kept, and objects as maps.
func decodeNumbers(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return toObjects(v), err
}

func toObjects(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = toObjects(v[i])
		}
	case map[string]any:
		o := object{}
		for k, e := range v {
			o = append(o, pair{k, toObjects(e)})
		}
		return o
	}
	return v
}

func equalValues(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		bn, ok := b.(json.Number)
		x, okX := new(big.Rat).SetString(string(a))
		y, okY := new(big.Rat).SetString(string(bn))
		return ok && okX && okY && x.Cmp(y) == 0
	case []any:
		bs, ok := b.([]any)
		if !ok || len(a) != len(bs) {
			return false
		}
		for i := range a {
			if !equalValues(a[i], bs[i]) {
				return false
			}
		}
		return true
	case object:
		bo, ok := b.(object)
		if !ok || len(a) != len(bo) {
			return false
		}
		for _, p := range a {
			found := false
			for _, q := range bo {
				found = found || p.key == q.key && equalValues(p.val, q.val)
			}
			if !found {
				return false
			}
		}
		return true
	}
	return a == b
}
