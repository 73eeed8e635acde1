// Package shape reads Go source and reports how large and how named its parts are.
//
// The policy test holds the module to limits with it, and tools/measure prints
// its figures. It reads syntax only: no type checker, so it is fast and works
// on any checkout.
package shape

import (
	"cmp"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// A Func is one function or method.
type Func struct {
	Where    string // file and line
	Dir      string
	Receiver string // the type, without its package; empty for a function
	Name     string
	Lines    int
	Comments int // lines in the body that hold nothing but a comment
}

// A Type is one declared type.
type Type struct {
	Where    string
	Dir      string
	Name     string
	Fields   int // an embedded struct of the module counts with all of its fields
	Methods  int // declared, promoted, and functions that take the type first
	Declared int // methods declared on the type itself
	IsIface  bool
}

// A Comment is one group of comment lines, or a string literal in code.
type Comment struct {
	Where string
	Text  string
	Doc   bool // it stands outside of function bodies
}

// Code is what was read.
type Code struct {
	Funcs    []Func
	Types    []Type
	Comments []Comment
	Strings  []Comment           // string literals of several words on one line
	Imports  map[string][]string // by directory: directories of the module
	Lines    int                 // without tests
	Tests    int
	Pure     int // lines that hold code
	Prose    int // lines that hold nothing but a comment
	Packages int
	Examples int
}

// Read reads the module below root, whose import path is module. Only files that
// this system builds are read, so that the twins of a file are counted once.
func Read(root, module string) (*Code, error) {
	r := &reader{root: root, module: module, types: map[string]*declared{}, code: &Code{Imports: map[string][]string{}}}
	if err := filepath.WalkDir(root, r.visit); err != nil {
		return nil, err
	}
	r.finish()
	return r.code, nil
}

type reader struct {
	root, module string
	code         *Code
	types        map[string]*declared // by directory and name
	order        []*declared
	packages     map[string]bool
}

// declared is a type with what is needed to count its promoted methods.
type declared struct {
	Type
	fields   int
	methods  map[string]bool
	embedded []string // keys into reader.types
	taking   int      // functions that take it first
}

func (r *reader) visit(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if d.IsDir() {
		// The root itself may be ".".
		skip := d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && name != r.root
		if skip {
			return filepath.SkipDir
		}
		return nil
	}
	if filepath.Ext(name) != ".go" {
		return nil
	}
	src, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	rel, _ := filepath.Rel(r.root, name)
	if strings.HasSuffix(name, "_test.go") {
		r.code.Tests += strings.Count(string(src), "\n")
		r.code.Examples += strings.Count("\n"+string(src), "\nfunc Example")
		return nil
	}
	// A function with one body for each system would count several times.
	if here, err := build.Default.MatchFile(filepath.Dir(name), d.Name()); err != nil || !here {
		return err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	fr := &fileReader{reader: r, fset: fset, file: f, dir: path.Dir(filepath.ToSlash(rel)), alone: map[int]bool{}, imports: map[string]string{}}
	fr.read(src)
	return nil
}

// fileReader reads one file.
type fileReader struct {
	*reader
	fset    *token.FileSet
	file    *ast.File
	dir     string
	alone   map[int]bool      // lines that hold nothing but a comment
	imports map[string]string // local name of a package of the module -> its directory
}

func (f *fileReader) read(src []byte) {
	f.countLines(string(src))
	f.readImports()
	for _, d := range f.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			f.readFunc(d)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if t, ok := s.(*ast.TypeSpec); ok {
					f.readType(t)
				}
			}
		}
	}
	f.readTexts()
}

func (f *fileReader) countLines(src string) {
	if f.packages == nil {
		f.packages = map[string]bool{}
	}
	f.packages[f.dir] = true
	for i, line := range strings.Split(src, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "//"):
			f.alone[i+1] = true
			f.code.Prose++
		case line != "":
			f.code.Pure++
		}
	}
	f.code.Lines += strings.Count(src, "\n")
}

func (f *fileReader) readImports() {
	for _, i := range f.file.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		dir, ours := ".", p == f.module
		if rest, below := strings.CutPrefix(p, f.module+"/"); below {
			dir, ours = rest, true
		}
		if !ours {
			continue
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		f.imports[name] = dir
		if !slices.Contains(f.code.Imports[f.dir], dir) {
			f.code.Imports[f.dir] = append(f.code.Imports[f.dir], dir)
		}
	}
}

func (f *fileReader) where(p token.Pos) string {
	at := f.fset.Position(p)
	return at.Filename + ":" + itoa(at.Line)
}

func (f *fileReader) readFunc(d *ast.FuncDecl) {
	first, last := f.fset.Position(d.Pos()).Line, f.fset.Position(d.End()).Line
	fn := Func{Where: f.where(d.Pos()), Dir: f.dir, Name: d.Name.Name, Lines: last - first + 1}
	for i := first; i <= last; i++ {
		if f.alone[i] {
			fn.Comments++
		}
	}
	if d.Recv != nil {
		fn.Receiver = typeName(d.Recv.List[0].Type)
		f.typeOf(f.dir, fn.Receiver).methods[fn.Name] = true
	} else if t := firstParam(d.Type.Params.List); t != "" {
		f.typeOf(f.dir, t).taking++
	}
	f.code.Funcs = append(f.code.Funcs, fn)
}

// firstParam names the type of the same package that a function takes first, or
// first after a context.
func firstParam(params []*ast.Field) string {
	if len(params) > 0 {
		// A function that takes a type first is a method in disguise, and a context may stand before it.
		if s, ok := params[0].Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Context" {
			params = params[1:]
		}
	}
	if len(params) == 0 {
		return ""
	}
	name := typeName(params[0].Type)
	if name == "" || predeclared[name] {
		return ""
	}
	return name
}

var predeclared = map[string]bool{"string": true, "int": true, "int64": true, "uint64": true, "bool": true, "error": true, "any": true, "byte": true,
	"float64": true, "rune": true, "uint8": true, "uint16": true, "uint32": true, "int32": true, "uint": true, "uintptr": true}

func (f *fileReader) readType(t *ast.TypeSpec) {
	d := f.typeOf(f.dir, t.Name.Name)
	d.Where = f.where(t.Pos())
	switch x := t.Type.(type) {
	case *ast.StructType:
		for _, field := range x.Fields.List {
			if len(field.Names) == 0 {
				// Embedding would hide methods and fields from a count of what is declared.
				d.embedded = append(d.embedded, f.keyOf(field.Type))
				d.fields++
			}
			d.fields += len(field.Names)
		}
	case *ast.InterfaceType:
		d.IsIface = true
		for _, m := range x.Methods.List {
			if len(m.Names) == 0 {
				d.embedded = append(d.embedded, f.keyOf(m.Type))
			}
			for _, n := range m.Names {
				d.methods[n.Name] = true
			}
		}
	}
}

// keyOf is the key of a type that is embedded; empty for one of another module.
func (f *fileReader) keyOf(e ast.Expr) string {
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	if s, ok := e.(*ast.SelectorExpr); ok {
		if p, ok := s.X.(*ast.Ident); ok && f.imports[p.Name] != "" {
			return f.imports[p.Name] + "." + s.Sel.Name
		}
		return ""
	}
	if name := typeName(e); name != "" && !predeclared[name] {
		return f.dir + "." + name
	}
	return ""
}

func (r *reader) typeOf(dir, name string) *declared {
	key := dir + "." + name
	d := r.types[key]
	if d == nil {
		d = &declared{Type: Type{Dir: dir, Name: name}, methods: map[string]bool{}}
		r.types[key] = d
		r.order = append(r.order, d)
	}
	return d
}

// typeName is the name of a type of the same package, without pointer and type
// parameters.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// readTexts collects comments, and string literals that read like sentences.
func (f *fileReader) readTexts() {
	type span struct{ from, to token.Pos }
	var bodies []span
	ast.Inspect(f.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				bodies = append(bodies, span{n.Body.Pos(), n.Body.End()})
			}
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			// Struct tags, templates and expressions are no sentences.
			if n.Kind == token.STRING && strings.Count(n.Value, " ") >= 3 && !strings.Contains(n.Value, `:"`) && !strings.Contains(n.Value, "\n") && !strings.Contains(n.Value, `\n`) && !strings.HasPrefix(n.Value, "`^") {
				f.code.Strings = append(f.code.Strings, Comment{Where: f.where(n.Pos()), Text: strings.Trim(n.Value, "`\"")})
			}
		}
		return true
	})
	for _, g := range f.file.Comments {
		doc := true
		for _, b := range bodies {
			if b.from <= g.Pos() && g.Pos() < b.to {
				doc = false
			}
		}
		f.code.Comments = append(f.code.Comments, Comment{Where: f.where(g.Pos()), Text: g.Text(), Doc: doc})
	}
}

// finish counts what types inherit.
func (r *reader) finish() {
	r.code.Packages = len(r.packages)
	for _, d := range r.order {
		if d.Where == "" {
			continue // a type of another system's file
		}
		t := d.Type
		t.Declared = len(d.methods)
		names := map[string]bool{}
		t.Fields = r.inherit(d, names, map[*declared]bool{})
		t.Methods = len(names)
		// A function that takes an interface first is no method of it.
		if !t.IsIface {
			t.Methods += d.taking
		}
		r.code.Types = append(r.code.Types, t)
	}
	slices.SortFunc(r.code.Types, func(a, b Type) int {
		return cmp.Or(b.Methods-a.Methods, b.Fields-a.Fields, strings.Compare(a.Where, b.Where))
	})
}

// inherit adds the names of all methods of d, and returns its fields.
func (r *reader) inherit(d *declared, names map[string]bool, seen map[*declared]bool) int {
	if seen[d] {
		return 0
	}
	// Two types may embed each other by pointers.
	seen[d] = true
	for m := range d.methods {
		names[m] = true
	}
	fields := d.fields
	for _, key := range d.embedded {
		e := r.types[key]
		if e == nil {
			continue
		}
		fields += r.inherit(e, names, seen)
		// Its own fields take its place; a type without any counts as one field.
		if len(e.methods) > 0 && !e.IsIface || e.fields > 0 {
			fields-- // the embedded field itself
		}
	}
	return fields
}

// Depth counts the imports on the longest chain of the module's own packages,
// and returns that chain.
func (c *Code) Depth(counted func(dir string) bool) (int, []string) {
	memo := map[string][]string{}
	var chain func(dir string) []string
	chain = func(dir string) []string {
		if got, ok := memo[dir]; ok {
			return got
		}
		// A cycle, which only broken code has, must not recurse for ever.
		memo[dir] = nil
		var longest []string
		for _, i := range c.Imports[dir] {
			if below := chain(i); len(below) > len(longest) {
				longest = below
			}
		}
		memo[dir] = append([]string{dir}, longest...)
		return memo[dir]
	}
	var longest []string
	for dir := range c.Imports {
		if counted(dir) {
			// Of equally long chains the first by name counts, so that the output is always the same.
			if got := chain(dir); len(got) > len(longest) || len(got) == len(longest) && slices.Compare(got, longest) < 0 {
				longest = got
			}
		}
	}
	return max(len(longest)-1, 0), longest
}

// Words splits a Go name into its words.
func Words(name string) []string {
	var words []string
	start := 0
	rs := []rune(strings.ReplaceAll(name, "_", " "))
	for i, c := range rs {
		upper := unicode.IsUpper(c)
		next := i+1 < len(rs) && unicode.IsLower(rs[i+1])
		if c == ' ' || i > start && upper && (!unicode.IsUpper(rs[i-1]) || next) {
			if w := strings.TrimSpace(string(rs[start:i])); w != "" {
				words = append(words, w)
			}
			start = i
		}
	}
	if w := strings.TrimSpace(string(rs[start:])); w != "" {
		words = append(words, w)
	}
	return words
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}
