// Package schema decides whether a JSON document is what a schema asks for.
//
// It is pure: no I/O, no clock, no goroutine, nothing remote. The same schema
// and document give the same verdict and the same words every time, so a
// verdict can be part of a replayed state.
//
// A schema is JSON Schema 2020-12. The common part of it (types, properties,
// required, additionalProperties, items, enum, const, bounds, pattern, anyOf)
// is checked on the bytes of the document, in one pass and without allocating;
// see fast.go. The rest is left to a library; see full.go. Tests hold the two
// to the same verdicts.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxSchema is the largest schema that is compiled.
const maxSchema = 256 << 10

// A Schema says what documents are accepted. It does not change and is safe
// for concurrent use.
type Schema struct {
	raw  json.RawMessage
	fast *node // nil: full decides
	full *full
}

// Compile reads a JSON Schema. Its error says where in the schema something
// else was expected. A reference must point into the schema itself; nothing is
// ever fetched.
func Compile(raw []byte) (*Schema, error) {
	if len(raw) > maxSchema {
		return nil, fmt.Errorf("schema: %d bytes; expected at most %d", len(raw), maxSchema)
	}
	if f := valid(raw); f != nil {
		return nil, fmt.Errorf("schema: not JSON: %w", f)
	}
	s := &Schema{raw: bytes.Clone(raw)}
	var err error
	if s.fast = compileFast(s.raw); s.fast == nil {
		s.full, err = compileFull(s.raw)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Raw returns the schema as it was given.
func (s *Schema) Raw() json.RawMessage { return s.raw }

// A Violation says why a document was not accepted, in a form that a program
// or a model can act on. For one schema and document it is always the same.
type Violation struct {
	Where    string          // JSON pointer to the offending value
	Expected json.RawMessage // the schema of that place; only its failing keyword if it is large
	Got      string          // what stands there, cut to a modest size
	Message  string          // one sentence
}

func (v *Violation) Error() string {
	if v.Where == "" {
		return v.Message
	}
	return v.Message + " (at " + v.Where + ")"
}

// Check returns nil if doc is what the schema asks for.
func (s *Schema) Check(doc []byte) *Violation {
	if len(doc) > MaxSize {
		return unreadable(doc, valid(doc))
	}
	if s.fast == nil {
		if f := valid(doc); f != nil {
			return unreadable(doc, f)
		}
		return s.full.check(doc)
	}
	c := checker{scanner: scanner{b: doc}}
	c.space()
	if c.check(s.fast) {
		if c.space(); c.i == len(doc) {
			return nil
		}
	}
	// That the text is not JSON is said first, also if a violation stands
	// before the place.
	if f := valid(doc); f != nil {
		return unreadable(doc, f)
	}
	return c.violation()
}

func unreadable(doc []byte, f *fault) *Violation {
	from := max(0, min(f.off, len(doc))-40)
	return &Violation{Got: clip(doc[from:]), Message: "not a JSON document: " + f.Error()}
}

// Sizes to which a Violation is cut.
const (
	maxGot      = 200
	maxExpected = 1 << 10
)

// clip cuts b to a modest size of whole characters. What is not UTF-8 is
// replaced.
func clip(b []byte) string {
	if len(b) <= maxGot {
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	const dots = "..."
	b = b[:maxGot-len(dots)]
	for n := 0; n < utf8.UTFMax && len(b) > 0 && !utf8.Valid(b); n++ {
		b = b[:len(b)-1]
	}
	return strings.ToValidUTF8(string(b), "") + dots
}

// expected is the schema at a place, cut to what fits: all of it, or only its
// type and the keyword that failed, or nothing.
func expected(raw []byte, keyword string) json.RawMessage {
	if len(raw) <= maxExpected {
		return compact(raw)
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	some := map[string]json.RawMessage{}
	for _, k := range []string{"type", keyword} {
		if v, ok := all[k]; ok {
			some[k] = v
		}
	}
	if out, err := json.Marshal(some); err == nil && len(some) > 0 && len(out) <= maxExpected {
		return out
	}
	return nil
}

func compact(raw []byte) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return nil
	}
	return b.Bytes()
}

// token appends one step to a JSON pointer.
func token(name string) string {
	return "/" + strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// quoted prints a name from outside in a sentence.
func quoted(b []byte) string { return strconv.Quote(clip(b)) }

// errAt is an error about a place in a schema.
func errAt(where, msg string) error {
	if where == "" {
		where = "/"
	}
	return errors.New("schema: at " + where + ": " + msg)
}
