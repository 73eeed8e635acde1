package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// base is the address a schema stands under while it is compiled. It never
// leaves the package.
const base = "urn:kern:schema"

// These bound how many subschemas one check may evaluate. A recursive schema
// with alternatives can double its work at every level of a document; honest
// work grows with the bytes of the document.
const (
	visitsAtLeast = 100_000
	visitsPerByte = 8
)

// full is a schema as the library understands it. mu guards left, the effort
// that is left to the current check.
type full struct {
	raw  []byte
	mu   sync.Mutex
	s    *jsonschema.Schema
	left int
}

// nowhere is a loader of references that lead out of the schema.
type nowhere struct{}

func (nowhere) Load(string) (any, error) { return nil, errRemote }

var (
	errRemote = errors.New("the reference leads out of the schema; expected one that begins with #, because nothing is fetched")
	errEffort = errors.New("too much work")
)

func compileFull(raw []byte) (*full, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errAt("", err.Error())
	}
	f := &full{raw: raw}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nowhere{})
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: base + ":effort",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) { return effort{f}, nil }})
	c.AssertVocabs()
	if err := c.AddResource(base, doc); err != nil {
		return nil, errAt("", plainWords(err))
	}
	if f.s, err = compileSafely(c); err != nil {
		return nil, compileError(err)
	}
	return f, nil
}

// compileSafely turns a panic of the library into an error: a schema comes
// from outside.
func compileSafely(c *jsonschema.Compiler) (s *jsonschema.Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot be compiled: %v", p)
		}
	}()
	return c.Compile(base)
}

// effort stops a check that evaluates too many subschemas.
type effort struct{ f *full }

func (e effort) Validate(*jsonschema.ValidatorContext, any) {
	if e.f.left--; e.f.left < 0 {
		panic(errEffort)
	}
}

func compileError(err error) error {
	var bad *jsonschema.SchemaValidationError
	var v *jsonschema.ValidationError
	if errors.As(err, &bad) && errors.As(bad.Err, &v) {
		v = worst(v)
		return errAt(pointer(v.InstanceLocation), words(v))
	}
	return errAt("", plainWords(err))
}

// plainWords is an error of the library without the inner name of the schema.
func plainWords(err error) string {
	s := strings.ReplaceAll(err.Error(), base+"#", "#")
	return strings.ReplaceAll(s, base, "the schema")
}

func (f *full) check(doc []byte) (v *Violation) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return &Violation{Got: clip(doc), Message: "not a JSON document: " + err.Error()}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			v = &Violation{Expected: expected(f.raw, ""), Got: clip(doc), Message: fmt.Sprintf("the schema could not be evaluated: %v", p)}
		}
	}()
	f.left = visitsAtLeast + visitsPerByte*len(doc)
	var bad *jsonschema.ValidationError
	if err := f.s.Validate(value); err == nil {
		return nil
	} else if !errors.As(err, &bad) {
		return &Violation{Expected: expected(f.raw, ""), Got: clip(doc), Message: plainWords(err)}
	}
	bad = worst(bad)
	where := bad.InstanceLocation
	if k, ok := bad.ErrorKind.(*kind.AdditionalProperties); ok {
		where = append(slices.Clip(where), slices.Min(k.Properties))
	}
	keyword := ""
	if path := bad.ErrorKind.KeywordPath(); len(path) > 0 {
		keyword = path[0]
	}
	return &Violation{
		Where:    pointer(where),
		Expected: expected(at(f.raw, bad.SchemaURL), keyword),
		Got:      clip(valueAt(doc, where)),
		Message:  words(bad),
	}
}

// worst picks the one error to report: the deepest in the document, and among
// equals the first by its words, because the library finds them in no order.
// Alternatives are opened only where one of them got deeper than they stand.
func worst(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	best := e
	for i, c := range e.Causes {
		c = worst(c)
		if (i == 0 && !alternative(e)) || before(c, best) {
			best = c
		}
	}
	return best
}

func alternative(e *jsonschema.ValidationError) bool {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf, *kind.Contains, *kind.MinContains:
		return true
	}
	return false
}

func before(a, b *jsonschema.ValidationError) bool {
	if la, lb := len(a.InstanceLocation), len(b.InstanceLocation); la != lb {
		return la > lb
	}
	if alternative(b) && !alternative(a) {
		return false
	}
	ka, kb := pointer(a.InstanceLocation)+"\x00"+words(a)+a.SchemaURL, pointer(b.InstanceLocation)+"\x00"+words(b)+b.SchemaURL
	return ka < kb
}

var english = message.NewPrinter(language.English)

// words is the error in one sentence, without what differs from run to run.
func words(e *jsonschema.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		return "unexpected field " + quoted([]byte(slices.Min(k.Properties)))
	case *kind.Required:
		names := make([]string, len(k.Missing))
		for i, n := range k.Missing {
			names[i] = quoted([]byte(n))
		}
		slices.Sort(names)
		return "missing " + fieldList(names)
	case *kind.Type:
		return "expected " + strings.Join(k.Want, " or ") + ", got " + k.Got
	}
	s := strings.ReplaceAll(e.ErrorKind.LocalizedString(english), base+"#", "#")
	if len(s) > maxGot {
		s = clip([]byte(s))
	}
	return s
}

func pointer(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteString(token(p))
	}
	return b.String()
}

// at returns the subschema that a URL of the library names.
func at(raw []byte, location string) []byte {
	_, frag, _ := strings.Cut(location, "#")
	frag, err := url.PathUnescape(frag)
	if err != nil {
		return raw
	}
	var path []string
	if frag != "" {
		for _, t := range strings.Split(frag[1:], "/") {
			path = append(path, strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~"))
		}
	}
	if v := valueAt(raw, path); v != nil {
		return v
	}
	return raw
}

// valueAt returns the bytes of the value that a path leads to, nil if there is none.
func valueAt(doc []byte, path []string) []byte {
	v := json.RawMessage(bytes.TrimSpace(doc))
	for _, p := range path {
		var obj map[string]json.RawMessage
		var arr []json.RawMessage
		switch {
		case len(v) > 0 && v[0] == '{' && json.Unmarshal(v, &obj) == nil:
			v = obj[p]
		case len(v) > 0 && v[0] == '[' && json.Unmarshal(v, &arr) == nil:
			var i int
			if _, err := fmt.Sscanf(p, "%d", &i); err != nil || i < 0 || i >= len(arr) {
				return nil
			}
			v = arr[i]
		default:
			return nil
		}
	}
	return v
}
