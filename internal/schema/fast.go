package schema

import (
	"bytes"
	"encoding/json"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A node is a schema in a form that is checked on the bytes of a document.
// What it cannot express is not compiled to a node at all.
type node struct {
	raw   []byte
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
	constant bool     // enum came from const

	num           []bound
	length, count span // characters of a string, items of an array
	members       span // members of an object
	hasLen        bool
}

// prop is a name that a node knows.
type prop struct {
	name     []byte
	declared bool // in properties; otherwise only required
	n        *node
}

// bound is minimum, maximum or an exclusive one of them.
type bound struct {
	keyword string
	sign    int  // the comparison of value and limit that violates it
	strict  bool // equality violates it too
	limit   decimal
	text    string
}

// span is a range of sizes; max < 0 means no end.
type span struct{ min, max int }

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

const maxProps = 64 // bits of node.required and checker.seen

// compileFast returns the node of a schema, or nil if it holds anything that a
// node does not express or that may be a mistake: the library decides then.
func compileFast(raw []byte) *node {
	n, ok := compileNode(raw, true)
	if !ok {
		return nil
	}
	return n
}

func compileNode(raw []byte, root bool) (*node, bool) {
	raw = bytes.TrimSpace(raw)
	n := &node{raw: raw, length: span{0, -1}, count: span{0, -1}, members: span{0, -1}}
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
	for k, v := range fields(raw) {
		if k == "$schema" && root && string(v) == `"https://json-schema.org/draft/2020-12/schema"` {
			continue
		}
		if !n.read(k, v) {
			return nil, false
		}
	}
	if len(n.props) > 8 {
		n.index = make(map[string]int, len(n.props))
		for i, p := range n.props {
			n.index[string(p.name)] = i
		}
	}
	slices.SortFunc(n.num, func(a, b bound) int { return strings.Compare(a.keyword, b.keyword) })
	return n, len(n.props) <= maxProps
}

// read takes in one keyword. It returns false for what a node cannot express,
// which leaves the whole schema to the library.
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
		n.hasLen = true
		return readSize(&n.length.min, v)
	case "maxLength":
		n.hasLen = true
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
	return note(k, v)
}

// note reports whether k only remarks on values and is written as it should be.
func note(k string, v []byte) bool {
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
	n, ok := compileNode(v, false)
	*dst = n
	return ok
}

func (n *node) readProperties(v []byte) bool {
	if v[0] != '{' {
		return false
	}
	for name, v := range fields(v) {
		p := n.prop(name)
		p.declared = true
		if !readNode(&p.n, v) {
			return false
		}
	}
	return true
}

// fields goes through the members of an object that is known to be JSON, in
// the order in which they were written.
func fields(obj []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		s := scanner{b: obj}
		s.enter()
		for again := !s.empty('}'); again; {
			k, _ := s.key()
			from := s.i
			if !s.value() || !yield(string(s.content(k, nil)), obj[from:s.i]) {
				return
			}
			again, _ = s.more('}')
		}
	}
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
	n.constant = k == "const"
	var many []json.RawMessage
	if n.constant {
		many = append(many, v)
	} else if v[0] != '[' || json.Unmarshal(v, &many) != nil {
		return false
	}
	n.enum = make([][]byte, len(many))
	for i, v := range many {
		var err error
		if n.enum[i], err = Canonical(nil, v); err != nil {
			return false
		}
	}
	return true
}

func (n *node) readBound(k string, v []byte) bool {
	if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return false
	}
	b := bound{keyword: k, sign: -1, strict: k[0] == 'e', limit: parseDecimal(nil, v), text: string(v)}
	if strings.HasSuffix(k, "aximum") {
		b.sign = 1
	}
	n.num = append(n.num, b)
	return true
}

// readSize reads a whole number, which may be written as 2.0. One that is too
// large to matter is left to the library.
func readSize(dst *int, v []byte) bool {
	if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return false
	}
	d := parseDecimal(nil, v)
	if d.neg || !d.integer() || d.point > 9 {
		return false
	}
	var err error
	*dst, err = strconv.Atoi(string(d.append(nil)))
	return err == nil
}

// A checker reads a document along a node. When check returns false, either
// the text is not JSON or the fields say what is wrong where; the way to the
// place is put together on the way back.
type checker struct {
	scanner
	where   string
	at      *node
	keyword string
	message string
	from    int // where the offending value begins
}

// wrong notes a violation. It is made only once for a document, so it may cost.
func (c *checker) wrong(n *node, keyword string, from int, message string) bool {
	if c.at == nil {
		c.at, c.keyword, c.from, c.message = n, keyword, from, message
	}
	return false
}

// above puts a step in front of the way to the violation.
func (c *checker) above(step string) bool {
	c.where = token(step) + c.where
	return false
}

func (c *checker) violation() *Violation {
	s := scanner{b: c.b, i: c.from}
	s.value()
	return &Violation{
		Where:    c.where,
		Expected: expected(c.at.raw, c.keyword),
		Got:      clip(c.b[c.from:s.i]),
		Message:  c.message,
	}
}

// any reports whether n accepts every value.
func (n *node) any() bool { return n == nil || len(n.raw) == 4 /* true */ || len(n.raw) == 2 /* {} */ }

// check reads one value and reports whether n accepts it.
func (c *checker) check(n *node) bool {
	if n.any() {
		return c.value()
	}
	from := c.i
	if n.never {
		return c.wrong(n, "", from, "nothing is accepted here")
	}
	var ok bool
	switch p := c.peek(); p {
	case '"':
		ok = c.is(n, isString) && c.checkString(n)
	case '{':
		ok = c.is(n, isObject) && c.checkObject(n)
	case '[':
		ok = c.is(n, isArray) && c.checkArray(n)
	case 't', 'f':
		ok = c.is(n, isBool) && c.value()
	case 'n':
		ok = c.is(n, isNull) && c.value()
	default:
		if p != '-' && (p < '0' || p > '9') {
			return c.value() // which says what is wrong
		}
		ok = c.checkNumber(n)
	}
	if !ok {
		return false
	}
	if n.enum != nil && !n.listed(c.b[from:c.i]) {
		return c.unlisted(n, from)
	}
	return n.anyOf == nil || c.checkAnyOf(n, from)
}

// is reports whether n accepts values of type t.
func (c *checker) is(n *node, t uint8) bool {
	if n.types == 0 || n.types&t != 0 {
		return true
	}
	return c.wrong(n, "type", c.i, "expected "+n.typeList()+", got "+typeOf(t))
}

func (n *node) typeList() string {
	var kw struct{ Type json.RawMessage }
	_ = json.Unmarshal(n.raw, &kw) // it was read before
	var one string
	if json.Unmarshal(kw.Type, &one) == nil {
		return one
	}
	var many []string
	_ = json.Unmarshal(kw.Type, &many)
	return strings.Join(many, " or ")
}

func typeOf(t uint8) string {
	for name, bits := range typeNames {
		if bits == t && t != isInteger {
			return name
		}
	}
	return "number"
}

func (c *checker) checkString(n *node) bool {
	from := c.i
	t, ok := c.str()
	if !ok || (!n.hasLen && n.pattern == nil) {
		return ok
	}
	if n.hasLen {
		var room [64]byte
		switch l := utf8.RuneCount(c.content(t, room[:0])); {
		case l < n.length.min:
			return c.wrong(n, "minLength", from, "expected at least "+plural(n.length.min, "character")+", got "+strconv.Itoa(l))
		case n.length.max >= 0 && l > n.length.max:
			return c.wrong(n, "maxLength", from, "expected at most "+plural(n.length.max, "character")+", got "+strconv.Itoa(l))
		}
	}
	if n.pattern != nil && !n.pattern.Match(c.content(t, nil)) {
		return c.wrong(n, "pattern", from, "expected a string that matches "+n.pattern.String())
	}
	return true
}

func (c *checker) checkNumber(n *node) bool {
	from := c.i
	num, ok := c.number()
	if !ok {
		return false
	}
	plain := digits(num) == len(num) || num[0] == '-' && digits(num[1:]) == len(num)-1
	if len(n.num) == 0 && (plain || n.types&(isInteger|isNumber) != isInteger) {
		c.i, from = from, c.i
		ok = c.is(n, isInteger|isNumber)
		c.i = from
		return ok
	}
	var room [40]byte
	d := parseDecimal(room[:0], num)
	t := isNumber
	if d.integer() {
		t = isInteger | isNumber
	}
	end := c.i
	c.i = from
	if !c.is(n, t) {
		return false
	}
	c.i = end
	for i := range n.num {
		b := &n.num[i]
		if cmp := d.compare(&b.limit); cmp == b.sign || (cmp == 0 && b.strict) {
			return c.wrong(n, b.keyword, from, "expected "+b.words()+" "+b.text)
		}
	}
	return true
}

func (b *bound) words() string {
	return map[string]string{"minimum": "at least", "maximum": "at most",
		"exclusiveMinimum": "more than", "exclusiveMaximum": "less than"}[b.keyword]
}

func (c *checker) checkArray(n *node) bool {
	from, count := c.i, 0
	if !c.enter() {
		return false
	}
	if !c.empty(']') {
		for again := true; again; count++ {
			if !c.check(n.items) {
				return c.above(strconv.Itoa(count))
			}
			var ok bool
			if again, ok = c.more(']'); !ok {
				return false
			}
		}
	}
	switch {
	case count < n.count.min:
		return c.wrong(n, "minItems", from, "expected at least "+plural(n.count.min, "item")+", got "+strconv.Itoa(count))
	case n.count.max >= 0 && count > n.count.max:
		return c.wrong(n, "maxItems", from, "expected at most "+plural(n.count.max, "item")+", got "+strconv.Itoa(count))
	}
	return true
}

func (c *checker) checkObject(n *node) bool {
	from, count := c.i, 0
	if !c.enter() {
		return false
	}
	var seen uint64
	var others keys
	if !c.empty('}') {
		for next, again := 0, true; again; count++ {
			k, ok := c.key()
			if !ok {
				return false
			}
			i := n.find(&c.scanner, k, next)
			if i >= 0 {
				if seen&(1<<i) != 0 {
					return c.twice(k)
				}
				seen |= 1 << i
				next = i + 1
			} else if !others.add(&c.scanner, k) {
				return false
			}
			if !c.checkMember(n, i, k) {
				return c.above(string(c.content(k, nil)))
			}
			if again, ok = c.more('}'); !ok {
				return false
			}
		}
	}
	if n.required&^seen != 0 {
		return c.wrong(n, "required", from, "missing "+n.missing(seen))
	}
	switch {
	case count < n.members.min:
		return c.wrong(n, "minProperties", from, "expected at least "+plural(n.members.min, "field")+", got "+strconv.Itoa(count))
	case n.members.max >= 0 && count > n.members.max:
		return c.wrong(n, "maxProperties", from, "expected at most "+plural(n.members.max, "field")+", got "+strconv.Itoa(count))
	}
	return true
}

// checkMember checks the value of key k, whose property is i.
func (c *checker) checkMember(n *node, i int, k text) bool {
	switch {
	case i >= 0 && n.props[i].declared:
		return c.check(n.props[i].n)
	case n.open != nil && n.open.never:
		return c.wrong(n, "additionalProperties", c.i, "unexpected field "+quoted(c.content(k, nil))+n.names())
	}
	return c.check(n.open)
}

// find returns the property of key k, or -1. Keys mostly come in order, so the
// next one is looked at first.
func (n *node) find(s *scanner, k text, next int) int {
	raw := s.raw(k)
	if k.escaped {
		raw = s.content(k, nil)
	}
	if next < len(n.props) && bytes.Equal(n.props[next].name, raw) {
		return next
	}
	if n.index != nil {
		if i, ok := n.index[string(raw)]; ok {
			return i
		}
		return -1
	}
	for i := range n.props {
		if bytes.Equal(n.props[i].name, raw) {
			return i
		}
	}
	return -1
}

// missing lists the required names that were not seen.
func (n *node) missing(seen uint64) string {
	var names []string
	for i, p := range n.props {
		if n.required&^seen&(1<<i) != 0 {
			names = append(names, quoted(p.name))
		}
	}
	slices.Sort(names)
	return fieldList(names)
}

// names says which names are declared, after "unexpected field".
func (n *node) names() string {
	var names []string
	for _, p := range n.props {
		if p.declared {
			names = append(names, quoted(p.name))
		}
	}
	if len(names) == 0 {
		return "; expected none"
	}
	slices.Sort(names)
	return "; expected only " + fieldList(names)
}

func fieldList(names []string) string {
	const most = 12
	more := ""
	if len(names) > most {
		more = " and " + strconv.Itoa(len(names)-most) + " more"
		names = names[:most]
	}
	if len(names) == 1 {
		return "field " + names[0]
	}
	return "fields " + strings.Join(names, ", ") + more
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// listed reports whether the value v, which is known to be JSON, is one of
// n.enum. A literal, and a string without escapes, is its own canonical form.
func (n *node) listed(v []byte) bool {
	var digits, number [48]byte
	switch c := v[0]; {
	case c == '-' || (c >= '0' && c <= '9'):
		d := parseDecimal(digits[:0], v)
		v = d.append(number[:0])
	case c == '{' || c == '[' || bytes.IndexByte(v, '\\') >= 0:
		var err error
		if v, err = Canonical(nil, v); err != nil {
			return false
		}
	}
	for _, e := range n.enum {
		if bytes.Equal(e, v) {
			return true
		}
	}
	return false
}

func (c *checker) unlisted(n *node, from int) bool {
	keyword, words := "enum", "expected one of "
	if n.constant {
		keyword, words = "const", "expected "
	}
	return c.wrong(n, keyword, from, words+clip(bytes.Join(n.enum, []byte(", "))))
}

// checkAnyOf looks at the value that begins at from again, by each branch.
func (c *checker) checkAnyOf(n *node, from int) bool {
	before := *c
	for _, branch := range n.anyOf {
		c.i = from
		if c.check(branch) {
			return true
		}
		*c = before
	}
	return c.wrong(n, "anyOf", from, "expected a value that fits one of "+plural(len(n.anyOf), "alternative"))
}
