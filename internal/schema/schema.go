// Package schema decides whether a JSON document is what a JSON Schema of draft
// 2020-12 asks for.
//
// It is pure: no I/O, no clock, no goroutine. The same schema and document give
// the same verdict and the same words every time, so a verdict can be part of a
// replayed state.
//
//   - schema.go: Compile and Check
//   - accept.go: accepts documents on their bytes, without allocating, for the
//     common keywords
//   - library.go: everything else, and the words for each violation
//   - gotype.go: the schema of a Go type
//
// Tests hold accept.go and the library to the same verdicts.
package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/kern-run/kern/internal/jsontext"
)

// maxSchema is the size of the largest schema that is compiled.
const maxSchema = 256 << 10

// A Schema says what documents are accepted. It does not change and is safe
// for concurrent use.
type Schema struct {
	raw  json.RawMessage
	node *node // nil: only the library decides
	// library compiles the schema when it is first called: most schemas never
	// see a violation, and the library takes twenty times as long as compileNode.
	library func() (*library, error)
}

// Compile reads a JSON Schema. Its error names the place in the schema and what
// was expected there. A reference must point into the schema itself, because
// nothing is fetched.
func Compile(raw []byte) (*Schema, error) {
	if len(raw) > maxSchema {
		return nil, fmt.Errorf("the schema has %d bytes, expected at most %d", len(raw), maxSchema)
	}
	if bad := jsontext.Check(raw, jsontext.Strict); bad != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", bad)
	}
	s := &Schema{raw: bytes.Clone(raw)}
	s.library = sync.OnceValues(func() (*library, error) { return compileLibrary(s.raw) })
	// A schema with a mistake has no node, so the library finds it here and not at the first document.
	if s.node = compileNode(s.raw); s.node == nil {
		if _, err := s.library(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Raw returns the text of the schema.
func (s *Schema) Raw() json.RawMessage { return s.raw }

// A Violation says why a document was not accepted, in a form that a program
// or a model can act on.
type Violation struct {
	Where    string          // JSON pointer to the offending value
	Expected json.RawMessage // the schema of that place; only the failing keyword if the schema is large
	Got      string          // the start of the offending value
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
	if bad := jsontext.Check(doc, jsontext.Strict); bad != nil {
		from := max(0, min(bad.Offset, len(doc))-40)
		return &Violation{Got: clip(doc[from:]), Message: "not a JSON document: " + bad.Error()}
	}
	// The quick check can only accept. Violations get their words from the library.
	if r := jsontext.NewReader(doc); s.node != nil && s.node.accepts(&r) {
		return nil
	}
	lib, err := s.library()
	if err != nil {
		return &Violation{Expected: expected(s.raw, ""), Got: clip(doc), Message: "the schema cannot be evaluated: " + err.Error()}
	}
	return lib.check(doc)
}

// Sizes to which a Violation is cut.
const (
	maxGot      = 200
	maxExpected = 1 << 10
)

// clip cuts b to a modest number of whole characters.
func clip(b []byte) string {
	if len(b) <= maxGot {
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	const dots = "..."
	b = b[:maxGot-len(dots)]
	// A character may be cut in half at the end.
	for n := 0; n < utf8.UTFMax && len(b) > 0 && !utf8.Valid(b); n++ {
		b = b[:len(b)-1]
	}
	return strings.ToValidUTF8(string(b), "") + dots
}

// expected returns a schema if it is small, else its type and the keyword that
// failed, else nothing.
func expected(raw []byte, keyword string) json.RawMessage {
	if len(raw) > maxExpected {
		excerpt := map[string]json.RawMessage{}
		for _, k := range []string{"type", keyword} {
			if v := jsontext.Get(raw, k); v != nil {
				excerpt[k] = v
			}
		}
		if raw, _ = json.Marshal(excerpt); len(excerpt) == 0 || len(raw) > maxExpected {
			return nil
		}
	}
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // Compile has checked it
	return b.Bytes()
}

// NoArgs are the arguments of a call that has none.
var NoArgs = []byte("{}")

// Spelling returns the canonical form of the arguments of a call, or the
// arguments themselves if they are not JSON.
func Spelling(scratch, args []byte) []byte {
	if len(args) == 0 {
		return NoArgs
	}
	b, err := jsontext.Canonical(scratch, args)
	if err != nil {
		return args
	}
	return b
}
