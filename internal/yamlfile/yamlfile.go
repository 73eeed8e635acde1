// Package yamlfile reads YAML files that people write, strictly. It refuses an
// unknown key, a wrong type and a key that comes twice. Each error names the
// file, the line, the column and what was expected.
package yamlfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/kern-run/kern/internal/jsontext"
)

// Bounds of a file. maxNodes counts the nodes that aliases repeat.
const (
	maxFile  = 16 << 20
	maxDepth = 64
	maxNodes = 1 << 20
)

// A Document is one YAML file. Its values come from the syntax tree and not
// from reflection, so that money stays decimal and arguments keep their order.
type Document struct {
	name    string
	anchors map[string]ast.Node
	nodes   int // visited so far, at most maxNodes
}

// A Field reads one value of a mapping.
type Field func(n ast.Node, what string) error

// Into returns a Field that stores the result of read.
func Into[T any](to *T, read func(ast.Node, string) (T, error)) Field {
	return func(n ast.Node, what string) (err error) {
		*to, err = read(n, what)
		return err
	}
}

// Parse parses a file with exactly one document.
func Parse(name string, data []byte) (d *Document, root ast.Node, err error) {
	f, err := parse(name, data)
	if err != nil {
		return nil, nil, err
	}
	d = &Document{name: name, anchors: map[string]ast.Node{}}
	for _, doc := range f.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			return nil, nil, d.Errorf(doc.Body, "a second document, expected one")
		}
		root = doc.Body
	}
	if root == nil {
		return nil, nil, fmt.Errorf("%s:1:1: the file is empty", name)
	}
	return d, root, nil
}

// Valid returns why data is not YAML, nil if it is. It accepts any number of
// documents.
func Valid(name string, data []byte) error {
	_, err := parse(name, data)
	return err
}

func parse(name string, data []byte) (*ast.File, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: %d bytes, expected at most %d", name, len(data), maxFile)
	}
	// Errors quote parts of the file, and JSON allows only UTF-8.
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("%s:%d:1: the line is not UTF-8", name, i+1)
		}
	}
	// The parser calls itself for each level. Go cannot recover from a stack that overflows.
	if line := tooDeep(data); line > 0 {
		return nil, fmt.Errorf("%s:%d:1: nested too deeply, expected at most %d levels", name, line, maxDepth)
	}
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		if ye, ok := err.(yaml.Error); ok && ye.GetToken() != nil {
			p, why := ye.GetToken().Position, ye.GetMessage()
			// The parser's own message for this common mistake names something else.
			if tabbed(data, p.Line) {
				why = "the line begins with a tab, expected spaces"
			}
			return nil, fmt.Errorf("%s:%d:%d: not YAML: %s", name, p.Line, p.Column, why)
		}
		return nil, fmt.Errorf("%s: not YAML: %v", name, err)
	}
	return f, nil
}

// tabbed reports whether a line, counted from 1, is indented with a tab.
func tabbed(data []byte, line int) bool {
	lines := bytes.Split(data, []byte("\n"))
	if line < 1 || line > len(lines) {
		return false
	}
	return bytes.HasPrefix(bytes.TrimLeft(lines[line-1], " "), []byte("\t"))
}

// tooDeep returns the first line that nests too deeply for a recursive parser,
// 0 if there is none. It counts brackets in strings too, so its bound is
// generous.
func tooDeep(b []byte) int {
	line, open, lead := 1, 0, 0
	indent := true
	for _, c := range b {
		switch {
		case c == '\n':
			line, lead, indent = line+1, 0, true
			continue
		case indent && (c == '-' || c == '?' || c == ':'):
			lead++ // "- - - -" nests without a bracket
		case indent && c != ' ':
			indent = false
		}
		switch c {
		case '[', '{':
			open++
		case ']', '}':
			open = max(0, open-1)
		}
		// Far above the real bound, because brackets in text count too, and far below what the stack holds.
		if open > 16*maxDepth || lead > 4*maxDepth {
			return line
		}
	}
	return 0
}

// Errorf returns an error with the place of a node.
func (d *Document) Errorf(n ast.Node, format string, args ...any) error {
	line, col := 1, 1
	if n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
		line, col = n.GetToken().Position.Line, n.GetToken().Position.Column
	}
	return fmt.Errorf("%s:%d:%d: %s", d.name, line, col, fmt.Sprintf(format, args...))
}

// Value follows anchors and aliases to the value of a node.
func (d *Document) Value(n ast.Node) (ast.Node, error) {
	at := n
	for range maxDepth {
		// Aliases of aliases can make a small file grow without bound.
		if d.nodes++; d.nodes > maxNodes {
			return nil, d.Errorf(at, "the file grows beyond %d values", maxNodes)
		}
		switch v := n.(type) {
		case *ast.AnchorNode:
			d.anchors[v.Name.GetToken().Value] = v.Value
			n = v.Value
		case *ast.AliasNode:
			name := v.Value.GetToken().Value
			a, ok := d.anchors[name]
			if !ok {
				return nil, d.Errorf(at, "the alias *%s has no anchor before it", name)
			}
			n = a
		case *ast.TagNode:
			return nil, d.Errorf(at, "the tag %s is not supported, expected a plain value", v.GetToken().Value)
		case nil:
			return nil, d.Errorf(at, "expected a value")
		default:
			return n, nil
		}
	}
	return nil, d.Errorf(at, "nested too deeply, expected at most %d levels", maxDepth)
}

// Mapping reads n with one Field for each key. It refuses any other key and
// names the known ones.
func (d *Document) Mapping(n ast.Node, what string, order []string, fields map[string]Field) error {
	n, err := d.Value(n)
	if err != nil {
		return err
	}
	m, ok := n.(ast.MapNode)
	if !ok {
		return d.Errorf(n, "%s is %s, expected a mapping with %s", what, KindOf(n), strings.Join(order, ", "))
	}
	seen := map[string]bool{}
	for it := m.MapRange(); it.Next(); {
		key := keyOf(it.Key())
		read, ok := fields[key]
		if !ok {
			return d.Errorf(it.Key(), "unknown key %q in %s, expected %s", jsontext.Clip(key), what, strings.Join(order, ", "))
		}
		if seen[key] {
			return d.Errorf(it.Key(), "the key %q comes twice in %s", key, what)
		}
		seen[key] = true
		if err := read(it.Value(), key); err != nil {
			return err
		}
	}
	return nil
}

// Entries reads a mapping with any names as keys.
func (d *Document) Entries(n ast.Node, what string, read func(name string, key, value ast.Node) error) error {
	n, err := d.Value(n)
	if err != nil {
		return err
	}
	m, ok := n.(ast.MapNode)
	if !ok {
		return d.Errorf(n, "%s is %s, expected a mapping of names", what, KindOf(n))
	}
	seen := map[string]bool{}
	for it := m.MapRange(); it.Next(); {
		name := keyOf(it.Key())
		if seen[name] {
			return d.Errorf(it.Key(), "the key %q comes twice in %s", jsontext.Clip(name), what)
		}
		seen[name] = true
		if err := read(name, it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return nil
}

func keyOf(k ast.MapKeyNode) string {
	switch v := k.(type) {
	case *ast.StringNode:
		return v.Value
	case *ast.MappingKeyNode:
		if s, ok := v.Value.(*ast.StringNode); ok {
			return s.Value
		}
	}
	return k.GetToken().Value
}

// List reads each element of a list.
func (d *Document) List(n ast.Node, what string, read func(ast.Node) error) error {
	n, err := d.Value(n)
	if err != nil {
		return err
	}
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		return d.Errorf(n, "%s is %s, expected a list", what, KindOf(n))
	}
	for _, e := range s.Values {
		if err := read(e); err != nil {
			return err
		}
	}
	return nil
}

// AppendTo returns a function for List that appends the result of read.
func AppendTo[T any](to *[]T, read func(ast.Node) (T, error)) func(ast.Node) error {
	return func(n ast.Node) error {
		v, err := read(n)
		*to = append(*to, v)
		return err
	}
}

// Text reads a string.
func (d *Document) Text(n ast.Node, what string) (string, error) {
	n, err := d.Value(n)
	if err != nil {
		return "", err
	}
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, nil
	case *ast.LiteralNode:
		return v.Value.Value, nil
	}
	return "", d.Errorf(n, "%s is %s, expected text (in quotes)", what, KindOf(n))
}

// Boolean reads true or false.
func (d *Document) Boolean(n ast.Node, what string) (bool, error) {
	n, err := d.Value(n)
	if err != nil {
		return false, err
	}
	if v, ok := n.(*ast.BoolNode); ok {
		return v.Value, nil
	}
	return false, d.Errorf(n, "%s is %s, expected true or false", what, KindOf(n))
}

// Count reads a whole number.
func (d *Document) Count(n ast.Node, what string) (int, error) {
	const most = 1 << 40 // sums and products with a price cannot overflow
	n, err := d.Value(n)
	if err != nil {
		return 0, err
	}
	if v, ok := n.(*ast.IntegerNode); ok {
		if i, ok := v.Value.(uint64); ok && i <= most {
			return int(i), nil
		}
	}
	return 0, d.Errorf(n, "%s is %s, expected a whole number from 0 to %d", what, KindOf(n), int64(most))
}

// Dollars reads an amount of dollars as nano-dollars, exactly.
func (d *Document) Dollars(n ast.Node, what string) (int64, error) {
	n, err := d.Value(n)
	if err != nil {
		return 0, err
	}
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		if v, ok := nanos(n.GetToken().Value); ok {
			return v, nil
		}
	}
	return 0, d.Errorf(n, "%s is %s, expected dollars such as 3.00, with at most 9 decimals, up to 1000000", what, KindOf(n))
}

// nanos parses digits with at most nine decimals.
func nanos(s string) (int64, bool) {
	whole, frac, _ := strings.Cut(s, ".")
	// No float is used: money must be exact to the last digit.
	if len(whole) > 7 || len(frac) > 9 || whole == "" {
		return 0, false
	}
	v, err := strconv.ParseUint(whole+frac+strings.Repeat("0", 9-len(frac)), 10, 63)
	if err != nil || v > 1_000_000*1_000_000_000 {
		return 0, false
	}
	return int64(v), true
}

// Duration reads a duration.
func (d *Document) Duration(n ast.Node, what string) (time.Duration, error) {
	n, err := d.Value(n)
	if err != nil {
		return 0, err
	}
	if _, ok := n.(ast.ScalarNode); ok {
		if v, err := time.ParseDuration(n.GetToken().Value); err == nil && v >= 0 {
			return v, nil
		}
	}
	return 0, d.Errorf(n, "%s is %s, expected a duration such as 250ms or 2s", what, KindOf(n))
}

var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// JSON returns n as JSON, with the keys in the order of the file.
func (d *Document) JSON(n ast.Node) (json.RawMessage, error) { return d.appendJSON(nil, n, 0) }

// Scalar returns the text of a number, a duration or a word as it is written.
func (d *Document) Scalar(n ast.Node, what string) (string, error) {
	n, err := d.Value(n)
	if err != nil {
		return "", err
	}
	if _, ok := n.(ast.ScalarNode); ok {
		return n.GetToken().Value, nil
	}
	return "", d.Errorf(n, "%s is %s, expected a single value", what, KindOf(n))
}

func (d *Document) appendJSON(b []byte, n ast.Node, depth int) ([]byte, error) {
	n, err := d.Value(n)
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, d.Errorf(n, "nested too deeply, expected at most %d levels", maxDepth)
	}
	switch v := n.(type) {
	case ast.MapNode:
		b = append(b, '{')
		sep := ""
		for it := v.MapRange(); it.Next(); {
			// A merge would add keys that do not stand here.
			if it.Key().IsMergeKey() {
				return nil, d.Errorf(it.Key(), "the merge key << is not supported, expected the keys themselves")
			}
			b = append(append(b, sep...), jsontext.Quote(keyOf(it.Key()))...)
			if b, err = d.appendJSON(append(b, ':'), it.Value(), depth+1); err != nil {
				return nil, err
			}
			sep = ","
		}
		return append(b, '}'), nil
	case *ast.SequenceNode:
		b = append(b, '[')
		for i, e := range v.Values {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = d.appendJSON(b, e, depth+1); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case *ast.StringNode:
		if number.MatchString(v.Value) && v.Token.Type == token.StringType {
			return append(b, v.Value...), nil // the parser takes long numbers and 1e3 for strings
		}
		return append(b, jsontext.Quote(v.Value)...), nil
	case *ast.LiteralNode:
		return append(b, jsontext.Quote(v.Value.Value)...), nil
	case *ast.BoolNode:
		return strconv.AppendBool(b, v.Value), nil
	case *ast.NullNode:
		return append(b, "null"...), nil
	case *ast.IntegerNode, *ast.FloatNode:
		// As it is written, a number keeps all its digits. Forms that only YAML has, such as 0x10, are converted.
		if raw := n.GetToken().Value; json.Valid([]byte(raw)) {
			return append(b, raw...), nil
		}
		enc, err := json.Marshal(n.(ast.ScalarNode).GetValue())
		if err != nil {
			return nil, d.Errorf(n, "%s cannot be written as JSON", n.GetToken().Value)
		}
		return append(b, enc...), nil
	}
	return nil, d.Errorf(n, "%s cannot be written as JSON", KindOf(n))
}

// KindOf describes a node in an error.
func KindOf(n ast.Node) string {
	switch n.(type) {
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "null"
	}
	return strconv.Quote(jsontext.Clip(n.GetToken().Value))
}
