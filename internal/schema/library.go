package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/kern-run/kern/internal/jsontext"
)

// base is the address of a schema while the library compiles it. It never
// leaves the package.
const base = "urn:kern:schema"

// These bound how many subschemas one check may evaluate. A recursive schema
// with alternatives can double its work at every level of a document; honest
// work grows with the bytes of the document.
const (
	visitsAtLeast = 100_000
	visitsPerByte = 8
)

// A library is a schema that the library compiled. mu guards left, the visits
// that the current check has left.
type library struct {
	raw  []byte
	mu   sync.Mutex
	s    *jsonschema.Schema
	left int
}

// noLoader refuses every reference that leads out of the schema.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errRemote }

var (
	errRemote = errors.New("the reference leads out of the schema; expected one that begins with #, because nothing is fetched")
	errEffort = errors.New("too much work")
)

func compileLibrary(raw []byte) (l *library, err error) {
	// A schema comes from outside: a panic of the library is an error of the
	// schema.
	defer func() {
		if p := recover(); p != nil {
			l, err = nil, fmt.Errorf("the schema cannot be compiled: %v", p)
		}
	}()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	l = &library{raw: raw}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	// The library's own loader would read files of the host that a schema names.
	c.UseLoader(noLoader{})
	// The library has no bound on its work. A vocabulary is called for each subschema, so it can count them.
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: base + ":effort",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) { return effort{l}, nil }})
	c.AssertVocabs()
	if err = c.AddResource(base, doc); err == nil {
		l.s, err = c.Compile(base)
	}
	if err != nil {
		return nil, compileError(err)
	}
	return l, nil
}

// effort stops a check that evaluates too many subschemas.
type effort struct{ l *library }

func (e effort) Validate(*jsonschema.ValidatorContext, any) {
	if e.l.left--; e.l.left < 0 {
		panic(errEffort)
	}
}

func compileError(err error) error {
	var bad *jsonschema.SchemaValidationError
	var v *jsonschema.ValidationError
	if errors.As(err, &bad) && errors.As(bad.Err, &v) {
		v = worst(v)
		where := pointer(v.InstanceLocation)
		return fmt.Errorf("at %s: %s", cmp.Or(where, "/"), words(v, nil))
	}
	return errors.New(withoutBase(err.Error()))
}

// withoutBase removes the inner address of the schema from an error.
func withoutBase(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, base+"#", "#"), base, "the schema")
}

// check returns the violation of a document, nil if there is none.
func (l *library) check(doc []byte) (v *Violation) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return &Violation{Got: clip(doc), Message: "not a JSON document: " + err.Error()}
	}
	// The counter of visits belongs to one check at a time.
	l.mu.Lock()
	defer l.mu.Unlock()
	// A panic of the counter, or of the library, becomes a violation. Accepting the document would be wrong.
	defer func() {
		if p := recover(); p != nil {
			v = &Violation{Expected: expected(l.raw, ""), Got: clip(doc), Message: fmt.Sprintf("the schema cannot be evaluated: %v", p)}
		}
	}()
	l.left = visitsAtLeast + visitsPerByte*len(doc)
	var bad *jsonschema.ValidationError
	if err := l.s.Validate(value); err == nil {
		return nil
	} else if !errors.As(err, &bad) {
		return &Violation{Expected: expected(l.raw, ""), Got: clip(doc), Message: withoutBase(err.Error())}
	}
	bad = worst(bad)
	where := bad.InstanceLocation
	// The library names the object. A model needs the field, always the same one.
	if k, ok := bad.ErrorKind.(*kind.AdditionalProperties); ok {
		where = append(slices.Clip(where), slices.Min(k.Properties))
	}
	keyword := ""
	if path := bad.ErrorKind.KeywordPath(); len(path) > 0 {
		keyword = path[0]
	}
	place := subschema(l.raw, bad.SchemaURL)
	return &Violation{
		Where:    pointer(where),
		Expected: expected(place, keyword),
		Got:      clip(valueAt(doc, where)),
		Message:  words(bad, place),
	}
}

// worst picks the error to report: the deepest in the document, because a model
// can act on it. It opens alternatives only if one of them got deeper than the
// alternatives stand.
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

// before orders errors, because the library finds them in no order.
func before(a, b *jsonschema.ValidationError) bool {
	if la, lb := len(a.InstanceLocation), len(b.InstanceLocation); la != lb {
		return la > lb
	}
	if alternative(b) && !alternative(a) {
		return false
	}
	// The words are the last resort, so that two errors are never equal and the choice is always the same.
	order := func(e *jsonschema.ValidationError) string {
		return strings.Join([]string{pointer(e.InstanceLocation), e.SchemaURL, strings.Join(e.ErrorKind.KeywordPath(), "/"), libraryWords(e)}, "\x00")
	}
	return order(a) < order(b)
}

var english = message.NewPrinter(language.English)

func libraryWords(e *jsonschema.ValidationError) string {
	return withoutBase(e.ErrorKind.LocalizedString(english))
}

// words returns an error in one sentence, always the same. place is the schema
// that the document violates.
func words(e *jsonschema.ValidationError, place []byte) string {
	s := ""
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		s = "expected " + strings.Join(k.Want, " or ") + ", got " + k.Got
	case *kind.Enum:
		s = "expected one of " + values(k.Want)
	case *kind.Const:
		s = "expected " + values([]any{k.Want})
	case *kind.Minimum:
		s = "expected at least " + decimal(k.Want)
	case *kind.Maximum:
		s = "expected at most " + decimal(k.Want)
	case *kind.ExclusiveMinimum:
		s = "expected more than " + decimal(k.Want)
	case *kind.ExclusiveMaximum:
		s = "expected less than " + decimal(k.Want)
	case *kind.MultipleOf:
		s = "expected a multiple of " + decimal(k.Want)
	case *kind.MinLength:
		s = size("least", k.Want, "character", k.Got)
	case *kind.MaxLength:
		s = size("most", k.Want, "character", k.Got)
	case *kind.MinItems:
		s = size("least", k.Want, "item", k.Got)
	case *kind.MaxItems:
		s = size("most", k.Want, "item", k.Got)
	case *kind.MinProperties:
		s = size("least", k.Want, "field", k.Got)
	case *kind.MaxProperties:
		s = size("most", k.Want, "field", k.Got)
	case *kind.Pattern:
		s = "expected a string that matches " + k.Want
	// These two name fields, which may be long, so fieldList and quoted cut them one by one.
	case *kind.Required:
		return "missing " + fieldList(k.Missing)
	case *kind.AdditionalProperties:
		return "unexpected field " + quoted(slices.Min(k.Properties)) + declared(place)
	case *kind.FalseSchema:
		s = "nothing is accepted here"
	case *kind.AnyOf:
		s = "none of " + plural(len(e.Causes), "alternative") + " fits: " + alternatives(e)
	case *kind.OneOf:
		// Nil means that no alternative fitted; otherwise two did.
		if k.Subschemas == nil {
			s = "none of " + plural(len(e.Causes), "alternative") + " fits: " + alternatives(e)
			break
		}
		s = fmt.Sprintf("expected exactly one alternative to fit, and number %d and %d fit", k.Subschemas[0]+1, k.Subschemas[1]+1)
	default:
		s = libraryWords(e)
	}
	return clip([]byte(s))
}

// alternatives lists what each alternative expected, each sentence once.
func alternatives(e *jsonschema.ValidationError) string {
	var all []string
	for _, c := range e.Causes {
		if s := words(worst(c), nil); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return strings.Join(all, "; or ")
}

// values prints values of a schema in their canonical form.
func values(all []any) string {
	var out []byte
	for i, v := range all {
		if i > 0 {
			out = append(out, ", "...)
		}
		b, _ := json.Marshal(v) // the library decoded it from JSON
		out, _ = jsontext.Canonical(out, b)
	}
	return string(out)
}

// decimal prints a bound with all its digits.
func decimal(r *big.Rat) string {
	places, _ := r.FloatPrec()
	return r.FloatString(places)
}

func size(bound string, want int, what string, got int) string {
	return "expected at " + bound + " " + plural(want, what) + ", got " + strconv.Itoa(got)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// declared lists the fields that a schema declares.
func declared(place []byte) string {
	if place == nil {
		return ""
	}
	var names []string
	for name := range jsontext.Members(jsontext.Get(place, "properties")) {
		names = append(names, string(name))
	}
	if len(names) == 0 {
		return "; expected none"
	}
	return "; expected only " + fieldList(names)
}

func fieldList(names []string) string {
	const most = 12
	// The library lists them in the order of a Go map, and a verdict must always be the same.
	slices.Sort(names)
	more := ""
	if len(names) > most {
		more = " and " + strconv.Itoa(len(names)-most) + " more"
		names = names[:most]
	}
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = quoted(n)
	}
	if len(all) == 1 {
		return "field " + all[0]
	}
	return "fields " + strings.Join(all, ", ") + more
}

// quoted prints a name from outside in a sentence.
func quoted(name string) string { return strconv.Quote(clip([]byte(name))) }

var pointerSteps = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteString("/" + pointerSteps.Replace(p))
	}
	return b.String()
}

// subschema returns the part of a schema that an address of the library names.
func subschema(raw []byte, address string) []byte {
	_, frag, _ := strings.Cut(address, "#")
	frag, err := url.PathUnescape(frag)
	if err != nil || frag == "" {
		return raw
	}
	path := strings.Split(frag[1:], "/")
	for i, p := range path {
		path[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	if v := valueAt(raw, path); v != nil {
		return v
	}
	return raw
}

// valueAt returns the value that a path leads to, nil if there is none.
func valueAt(doc []byte, path []string) []byte {
	v := bytes.TrimSpace(doc)
	for _, p := range path {
		next := jsontext.Get(v, p)
		for i, e := range jsontext.Elements(v) {
			if strconv.Itoa(i) == p {
				next = e
			}
		}
		v = next
	}
	return v
}
