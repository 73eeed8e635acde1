package schema

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/internal/jsontext"
)

// FromType returns the schema of the JSON documents that encoding/json reads
// into a value of type t. Objects are closed. A field is required unless it is
// a pointer, or its tag has omitempty or omitzero. The tag `description:"..."`
// describes a field. The tag `jsonschema:"minimum=1,enum=a|b"` adds keywords;
// without a keyword it is the description.
func FromType(t reflect.Type) (json.RawMessage, error) {
	if t == nil {
		return nil, fmt.Errorf("the schema of a Go type: no type")
	}
	w := typeWriter{}
	b, err := w.write(nil, t, "")
	if err != nil {
		return nil, fmt.Errorf("the schema of the Go type %s: %w", t, err)
	}
	return b, nil
}

// A typeWriter holds the structs that are being written, to find a type that
// contains itself.
type typeWriter struct{ open []reflect.Type }

var (
	typeRaw       = reflect.TypeFor[json.RawMessage]()
	typeNumber    = reflect.TypeFor[json.Number]()
	typeTime      = reflect.TypeFor[time.Time]()
	typeJSONReads = reflect.TypeFor[json.Unmarshaler]()
	typeTextReads = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// write appends the schema of t. more are keywords from a tag; they begin with
// a comma.
func (w *typeWriter) write(b []byte, t reflect.Type, more string) ([]byte, error) {
	put := func(s string) ([]byte, error) {
		if s == "" {
			more = strings.TrimPrefix(more, ",")
		}
		return append(append(append(append(b, '{'), s...), more...), '}'), nil
	}
	switch p := reflect.PointerTo(t); {
	case t == typeTime:
		return put(`"type":"string","format":"date-time"`)
	case t == typeNumber:
		return put(`"type":"number"`)
	// The type reads its own JSON, so nothing is known of its form.
	case t == typeRaw, t.Kind() != reflect.Pointer && p.Implements(typeJSONReads):
		return put("")
	case t.Kind() != reflect.Pointer && p.Implements(typeTextReads):
		return put(`"type":"string"`)
	}
	switch k := t.Kind(); k {
	case reflect.Bool:
		return put(`"type":"boolean"`)
	case reflect.String:
		return put(`"type":"string"`)
	case reflect.Float32, reflect.Float64:
		return put(`"type":"number"`)
	case reflect.Int, reflect.Int64:
		return put(`"type":"integer"`)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return put(`"type":"integer"` + bounds(t, more))
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return nil, fmt.Errorf("cannot be read from JSON: %s has methods; use a struct or json.RawMessage", t)
		}
		return put("")
	case reflect.Pointer:
		return w.pointer(b, t, more)
	case reflect.Slice, reflect.Array:
		return w.list(b, t, more)
	case reflect.Map:
		return w.dictionary(b, t, more)
	case reflect.Struct:
		return w.object(b, t, more)
	default:
		return nil, fmt.Errorf("cannot be read from JSON: kind %s", k)
	}
}

// bounds returns the range of a small integer, so that an accepted number fits.
// A bound from a tag replaces its own.
func bounds(t reflect.Type, more string) string {
	var low, high string
	if bits := t.Bits(); t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uintptr {
		low = "0"
		if bits < 64 {
			high = strconv.FormatUint(1<<bits-1, 10)
		}
	} else {
		low, high = strconv.FormatInt(-1<<(bits-1), 10), strconv.FormatInt(1<<(bits-1)-1, 10)
	}
	s := ""
	if !strings.Contains(more, `"minimum":`) {
		s += `,"minimum":` + low
	}
	if high != "" && !strings.Contains(more, `"maximum":`) {
		s += `,"maximum":` + high
	}
	return s
}

// pointer appends the schema of the element, or null.
func (w *typeWriter) pointer(b []byte, t reflect.Type, more string) ([]byte, error) {
	inner, err := w.write(nil, t.Elem(), more)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(string(inner), `{"type":"`) {
		return append(b, inner...), nil // accepts null already
	}
	// An enum without null would refuse null, whatever the type says.
	if strings.Contains(more, `"enum":`) {
		return append(append(append(b, `{"anyOf":[`...), inner...), `,{"type":"null"}]}`...), nil
	}
	name, rest, _ := strings.Cut(string(inner[len(`{"type":"`):]), `"`)
	return append(b, `{"type":["`+name+`","null"]`+rest...), nil
}

func (w *typeWriter) list(b []byte, t reflect.Type, more string) ([]byte, error) {
	// encoding/json reads bytes from base64, not from an array of numbers.
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return append(append(append(b, `{"type":"string","contentEncoding":"base64"`...), more...), '}'), nil
	}
	b = append(b, `{"type":"array","items":`...)
	b, err := w.write(b, t.Elem(), "")
	if err != nil {
		return nil, err
	}
	if t.Kind() == reflect.Array {
		b = append(b, fmt.Sprintf(`,"minItems":%d,"maxItems":%[1]d`, t.Len())...)
	}
	return append(append(b, more...), '}'), nil
}

func (w *typeWriter) dictionary(b []byte, t reflect.Type, more string) ([]byte, error) {
	if t.Key().Kind() != reflect.String {
		return nil, fmt.Errorf("a map with keys of type %s; expected string keys", t.Key())
	}
	b = append(b, `{"type":"object","additionalProperties":`...)
	b, err := w.write(b, t.Elem(), "")
	return append(append(b, more...), '}'), err
}

func (w *typeWriter) object(b []byte, t reflect.Type, more string) ([]byte, error) {
	// Such a schema would never end.
	for _, o := range w.open {
		if o == t {
			return nil, fmt.Errorf("%s contains itself; give the schema as JSON instead", t)
		}
	}
	w.open = append(w.open, t)
	defer func() { w.open = w.open[:len(w.open)-1] }()
	fs, err := structFields(t, 0, nil)
	if err != nil {
		return nil, err
	}
	var required []string
	b = append(b, `{"type":"object","properties":{`...)
	for i, f := range fs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, f.name), ':')
		kw, err := tagKeywords(f.StructField)
		// With the option string, encoding/json reads the value from a string.
		if err == nil && f.quoted {
			b, err = append(append(append(b, `{"type":"string"`...), kw...), '}'), nil
		} else if err == nil {
			b, err = w.write(b, f.Type, kw)
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		// encoding/json leaves both unset without an error, so they may be missing.
		if !f.optional && f.Type.Kind() != reflect.Pointer {
			required = append(required, f.name)
		}
	}
	b = append(b, '}')
	for i, name := range required {
		if i == 0 {
			b = append(b, `,"required":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendString(b, name)
	}
	if required != nil {
		b = append(b, ']')
	}
	return append(append(append(b, `,"additionalProperties":false`...), more...), '}'), nil
}

// A field is a struct field with its name in JSON.
type field struct {
	reflect.StructField
	name     string
	depth    int
	optional bool
	quoted   bool
}

// structFields lists the fields of t and of its embedded structs. Of two fields
// with one name the outer one counts, as in encoding/json.
func structFields(t reflect.Type, depth int, fs []field) ([]field, error) {
	if depth > 20 {
		return nil, fmt.Errorf("structs embedded too deep")
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name == "-" && opts == "":
			continue
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			// encoding/json cannot set such a pointer, and fails at run time.
			if !f.IsExported() && f.Type.Kind() == reflect.Pointer {
				return nil, fmt.Errorf("field %s: an embedded pointer that is not exported cannot be read from JSON", f.Name)
			}
			var err error
			if fs, err = structFields(inner, depth+1, fs); err != nil {
				return nil, err
			}
			continue
		case !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		opts = "," + opts + ","
		n := field{StructField: f, name: name, depth: depth, quoted: strings.Contains(opts, ",string,"),
			optional: strings.Contains(opts, ",omitempty,") || strings.Contains(opts, ",omitzero,")}
		var err error
		if fs, err = addField(fs, n); err != nil {
			return nil, err
		}
	}
	return fs, nil
}

func addField(fs []field, n field) ([]field, error) {
	for i, o := range fs {
		switch {
		case o.name != n.name:
		case o.depth == n.depth:
			return nil, fmt.Errorf("two fields have the name %q in JSON", n.name)
		case n.depth < o.depth:
			fs[i] = n
			return fs, nil
		default:
			return fs, nil
		}
	}
	return append(fs, n), nil
}

// tagKeywords returns the keywords from the tags of a field.
func tagKeywords(f reflect.StructField) (string, error) {
	var b []byte
	desc := f.Tag.Get("description")
	if tag := f.Tag.Get("jsonschema"); tag != "" {
		// A sentence may hold a comma or an equals sign, so only a first word with "=" begins keywords.
		if name, _, ok := strings.Cut(tag, "="); !ok || strings.ContainsAny(name, " ,") {
			desc = tag
		} else {
			for _, part := range strings.Split(tag, ",") {
				var err error
				if b, err = appendKeyword(b, part, f.Type); err != nil {
					return "", err
				}
			}
		}
	}
	if desc != "" {
		b = appendString(append(b, `,"description":`...), desc)
	}
	return string(b), nil
}

func appendKeyword(b []byte, part string, t reflect.Type) ([]byte, error) {
	k, v, ok := strings.Cut(part, "=")
	if !ok {
		return nil, fmt.Errorf("tag jsonschema: %q: expected keyword=value", part)
	}
	switch k {
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
		if jsontext.Check([]byte(v), jsontext.Strict) != nil || jsontext.Kind([]byte(v)) != '0' {
			return nil, fmt.Errorf("tag jsonschema: %s=%q: expected a number", k, v)
		}
		return append(b, `,"`+k+`":`+v...), nil
	case "pattern", "format", "title", "description":
		return appendString(append(b, `,"`+k+`":`...), v), nil
	case "enum":
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		for i, one := range strings.Split(v, "|") {
			if b = append(b, ','); i == 0 {
				b = append(b, `"enum":[`...)
			}
			// "1" is a string for a field of strings, and a number for all others.
			if t.Kind() == reflect.String {
				b = appendString(b, one)
			} else if jsontext.Check([]byte(one), jsontext.Strict) == nil {
				b = append(b, one...)
			} else {
				return nil, fmt.Errorf("tag jsonschema: enum %q: expected a value of type %s", one, t)
			}
		}
		return append(b, ']'), nil
	}
	return nil, fmt.Errorf("tag jsonschema: unknown keyword %q; expected a bound, pattern, format, enum, title or description", k)
}

func appendString(b []byte, s string) []byte {
	q, _ := json.Marshal(s) // a string always can
	return append(b, q...)
}
