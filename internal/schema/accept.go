package schema

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kern-run/kern/internal/jsontext"
)

// A node is a schema that is checked on the bytes of a document. It can only
// accept: what it does not accept is checked by the library, which finds the
// words for a violation. A schema with a keyword that a node does not know has no
// node.
type node struct {
	never bool // the schema false
	types uint8

	props    []prop // declared or required names
	index    map[string]int
	required uint64 // by index in props
	open     *node  // of names that are not declared; nil: any value
	items    *node  // nil: any value
	anyOf    []*node
	pattern  *regexp.Regexp
	enum     [][]byte // canonical forms; nil: any value

	bounds  []bound
	length  span // characters of a string
	count   span // items of an array
	members span // members of an object
}

// A prop is a name that a node knows.
type prop struct {
	name     []byte
	declared bool // in properties; otherwise only required
	n        *node
}

// A bound is one of minimum, maximum, exclusiveMinimum and exclusiveMaximum.
type bound struct {
	limit     jsontext.Decimal
	sign      int  // a value that compares like this to the limit is beyond it
	exclusive bool // the limit itself is beyond
}

// A span is a range of sizes; a negative max is no maximum.
type span struct{ min, max int }

func (s span) holds(n int) bool { return n >= s.min && (s.max < 0 || n <= s.max) }

// The JSON types, as bits.
const (
	isNull uint8 = 1 << iota
	isBool
	isInteger
	isNumber
	isString
	isArray
	isObject
)

var typeNames = map[string]uint8{"null": isNull, "boolean": isBool, "integer": isInteger, "number": isNumber | isInteger,
	"string": isString, "array": isArray, "object": isObject}

// kinds are the types of the values that begin with a character; see
// [jsontext.Kind].
var kinds = map[byte]uint8{'n': isNull, 't': isBool, 'f': isBool, '"': isString, '[': isArray, '{': isObject}

const maxProps = 64 // bits of node.required

// compileNode returns the node of a schema, or nil if a node cannot express the
// schema or if the schema may hold a mistake. The library decides then.
func compileNode(raw []byte) *node {
	n, ok := readSchema(raw, true)
	if !ok {
		return nil
	}
	return n
}

func readSchema(raw []byte, root bool) (*node, bool) {
	raw = bytes.TrimSpace(raw)
	n := &node{length: span{0, -1}, count: span{0, -1}, members: span{0, -1}}
	switch string(raw) {
	case "true":
		return n, true
	case "false":
		n.never = true
		return n, true
	}
	if raw[0] != '{' {
		return nil, false
	}
	for k, v := range jsontext.Members(raw) {
		// Any other draft has other rules, so the library reads it.
		if string(k) == "$schema" && root && string(v) == `"https://json-schema.org/draft/2020-12/schema"` {
			continue
		}
		if !n.read(string(k), v) {
			return nil, false
		}
	}
	// A few names are found faster by comparing them.
	if len(n.props) > 8 {
		n.index = make(map[string]int, len(n.props))
		for i, p := range n.props {
			n.index[string(p.name)] = i
		}
	}
	return n, len(n.props) <= maxProps
}

// read adds one keyword. It returns false for a keyword that a node cannot
// express.
func (n *node) read(k string, v []byte) bool {
	switch k {
	case "type":
		return n.readType(v)
	case "properties":
		return n.readProperties(v)
	case "required":
		return n.readRequired(v)
	case "additionalProperties":
		return readNode(&n.open, v)
	case "items":
		return readNode(&n.items, v)
	case "anyOf":
		return n.readAnyOf(v)
	case "pattern":
		return n.readPattern(v)
	case "enum", "const":
		return n.readEnum(k, v)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		return n.readBound(k, v)
	case "minLength":
		return readSize(&n.length.min, v)
	case "maxLength":
		return readSize(&n.length.max, v)
	case "minItems":
		return readSize(&n.count.min, v)
	case "maxItems":
		return readSize(&n.count.max, v)
	case "minProperties":
		return readSize(&n.members.min, v)
	case "maxProperties":
		return readSize(&n.members.max, v)
	}
	return isNote(k, v)
}

// isNote reports whether k is a valid keyword that restricts nothing.
func isNote(k string, v []byte) bool {
	switch k {
	case "title", "description", "$comment", "format", "contentEncoding", "contentMediaType":
		return v[0] == '"'
	case "deprecated", "readOnly", "writeOnly":
		return v[0] == 't' || v[0] == 'f'
	case "examples":
		return v[0] == '['
	}
	return k == "default"
}

func (n *node) readType(v []byte) bool {
	var many []string
	if v[0] == '[' {
		if json.Unmarshal(v, &many) != nil {
			return false
		}
	} else {
		many = make([]string, 1)
		if json.Unmarshal(v, &many[0]) != nil {
			return false
		}
	}
	for i, t := range many {
		bit, ok := typeNames[t]
		if !ok || slices.Contains(many[:i], t) {
			return false
		}
		n.types |= bit
	}
	return len(many) > 0
}

func readNode(dst **node, v []byte) bool {
	n, ok := readSchema(v, false)
	*dst = n
	return ok
}

func (n *node) readProperties(v []byte) bool {
	if v[0] != '{' {
		return false
	}
	for name, v := range jsontext.Members(v) {
		p := n.prop(string(name))
		p.declared = true
		if !readNode(&p.n, v) {
			return false
		}
	}
	return true
}

// prop returns the property of a name, which is added if it is new.
func (n *node) prop(name string) *prop {
	i := slices.IndexFunc(n.props, func(p prop) bool { return string(p.name) == name })
	if i < 0 {
		i = len(n.props)
		n.props = append(n.props, prop{name: []byte(name)})
	}
	return &n.props[i]
}

func (n *node) readRequired(v []byte) bool {
	var names []*string
	if v[0] != '[' || json.Unmarshal(v, &names) != nil {
		return false
	}
	for _, name := range names {
		if name == nil {
			return false
		}
		n.prop(*name)
		i := slices.IndexFunc(n.props, func(p prop) bool { return string(p.name) == *name })
		// The library decides about a name that comes twice, which is a mistake in the schema.
		if i >= maxProps || n.required&(1<<i) != 0 {
			return false
		}
		n.required |= 1 << i
	}
	return true
}

func (n *node) readAnyOf(v []byte) bool {
	var many []json.RawMessage
	if v[0] != '[' || json.Unmarshal(v, &many) != nil || len(many) == 0 {
		return false
	}
	n.anyOf = make([]*node, len(many))
	for i, v := range many {
		if !readNode(&n.anyOf[i], v) {
			return false
		}
	}
	return true
}

func (n *node) readPattern(v []byte) bool {
	var p string
	if v[0] != '"' || json.Unmarshal(v, &p) != nil {
		return false
	}
	re, err := regexp.Compile(p)
	n.pattern = re
	return err == nil
}

func (n *node) readEnum(k string, v []byte) bool {
	if n.enum != nil {
		return false // enum and const together
	}
	var many []json.RawMessage
	if k == "const" {
		many = append(many, v)
	} else if v[0] != '[' || json.Unmarshal(v, &many) != nil {
		return false
	}
	n.enum = make([][]byte, len(many))
	for i, v := range many {
		var err error
		// Canonical forms make 1.0 and 1 the same value, and keys in another order the same object.
		if n.enum[i], err = jsontext.Canonical(nil, v); err != nil {
			return false
		}
	}
	return true
}

func (n *node) readBound(k string, v []byte) bool {
	if jsontext.Kind(v) != '0' {
		return false
	}
	b := bound{limit: jsontext.ParseDecimal(nil, v), sign: -1, exclusive: k[0] == 'e'}
	if strings.HasSuffix(k, "aximum") {
		b.sign = 1
	}
	n.bounds = append(n.bounds, b)
	return true
}

// readSize reads a whole number, which may be written as 2.0.
func readSize(dst *int, v []byte) bool {
	if jsontext.Kind(v) != '0' {
		return false
	}
	d := jsontext.ParseDecimal(nil, v)
	n, err := strconv.ParseUint(string(d.Append(nil)), 10, 30)
	*dst = int(n)
	return err == nil
}

// accepts reads one value and reports whether n accepts it. A nil node accepts
// any value.
func (n *node) accepts(r *jsontext.Reader) bool {
	if n == nil {
		r.Next()
		return true
	}
	before := *r
	ok := true
	switch kind := r.Kind(); {
	case n.never:
		ok = false
	// Whether a number is an integer shows only in its digits: 1.0 is one.
	case kind == '0':
		ok = n.acceptsNumber(r.Next())
	case n.types != 0 && n.types&kinds[kind] == 0:
		ok = false
	case kind == '{':
		ok = n.acceptsObject(r)
	case kind == '[':
		ok = n.acceptsArray(r)
	case kind == '"':
		ok = n.acceptsString(r.Next())
	default:
		r.Next()
	}
	// A copy of the reader reads the value again for each of these.
	if again := before; ok && n.enum != nil {
		ok = n.listed(again.Next())
	}
	return ok && (n.anyOf == nil || n.acceptsAny(before))
}

func (n *node) acceptsAny(before jsontext.Reader) bool {
	for _, branch := range n.anyOf {
		if again := before; branch.accepts(&again) {
			return true
		}
	}
	return false
}

func (n *node) acceptsString(v []byte) bool {
	if n.pattern == nil && n.length.min == 0 && n.length.max < 0 {
		return true
	}
	text := jsontext.Bare(v)
	return n.length.holds(utf8.RuneCount(text)) && (n.pattern == nil || n.pattern.Match(text))
}

func (n *node) acceptsNumber(v []byte) bool {
	var room [40]byte
	d := jsontext.ParseDecimal(room[:0], v)
	types := isNumber
	if d.Integer() {
		types |= isInteger
	}
	if n.types != 0 && n.types&types == 0 {
		return false
	}
	for i := range n.bounds {
		b := &n.bounds[i]
		if order := d.Compare(&b.limit); order == b.sign || order == 0 && b.exclusive {
			return false
		}
	}
	return true
}

func (n *node) acceptsArray(r *jsontext.Reader) bool {
	count := 0
	for ok := r.Enter(); ok; ok = r.More() {
		if count++; !n.items.accepts(r) {
			return false
		}
	}
	return n.count.holds(count)
}

func (n *node) acceptsObject(r *jsontext.Reader) bool {
	var seen uint64
	count, next := 0, 0
	for ok := r.Enter(); ok; ok = r.More() {
		name := jsontext.Bare(r.Key())
		count++
		value := n.open
		// A name that is only required has no schema of its own, so additionalProperties applies to it.
		if i := n.find(name, next); i >= 0 {
			seen |= 1 << i
			next = i + 1
			if p := &n.props[i]; p.declared {
				value = p.n
			}
		}
		if !value.accepts(r) {
			return false
		}
	}
	// Every required name is a bit, so one operation finds whether all were seen.
	return n.required&^seen == 0 && n.members.holds(count)
}

// find returns the index of a property, or -1. It looks at the next one first,
// because keys mostly come in the order of the schema.
func (n *node) find(name []byte, next int) int {
	if next < len(n.props) && bytes.Equal(n.props[next].name, name) {
		return next
	}
	if n.index != nil {
		if i, ok := n.index[string(name)]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(n.props, func(p prop) bool { return bytes.Equal(p.name, name) })
}

// listed reports whether the value v is one of n.enum. A literal, and a string
// without escapes, is its own canonical form.
func (n *node) listed(v []byte) bool {
	var digits, number [48]byte
	switch kind := jsontext.Kind(v); {
	case kind == '0':
		d := jsontext.ParseDecimal(digits[:0], v)
		v = d.Append(number[:0])
	case kind == '{' || kind == '[' || bytes.IndexByte(v, '\\') >= 0:
		// Check has read the document, so this cannot fail.
		v, _ = jsontext.Canonical(nil, v)
	}
	for _, e := range n.enum {
		if bytes.Equal(e, v) {
			return true
		}
	}
	return false
}
