package kern_test

import (
	"encoding/json"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/tools/shape"
)

// ranks is the architecture: a package imports only packages of a lower rank.
// A package that is not here may not exist; a leaf is of rank 0 and imports
// only the leaves named with it.
var ranks = map[string]int{
	"abi":                           0,
	"model":                         0,
	"internal/schema":               0,
	"internal/jsontext":             0,
	"internal/provider":             0, // finds a model, sends one request and meters the answer
	"internal/provider/catalog":     0, // what is known of models by their names
	"internal/provider/tokens":      0, // pure: a text in, its tokens out
	"internal/provider/transport":   0, // connections to providers
	"internal/provider/tariff":      0, // pure: everything in a request that a provider may bill
	"internal/provider/format":      0, // requests and answers in the formats of providers
	"internal/provider/cassette":    0, // recorded answers of providers, for tests
	"internal/yamlfile":             0, // strict YAML files
	"internal/diff":                 0, // pure: two versions in, a patch out
	"internal/recent":               0, // a bounded cache
	"internal/leaktest":             0, // what tests leave behind
	"internal/live":                 1, // what the journal does not hold
	"internal/sandbox":              0,
	"internal/sandbox/sandboxtest":  0,
	"internal/provider/modeltest":   0, // holds models to their contract in tests
	"internal/sandbox/wasm":         0,
	"internal/sandbox/jail":         2,
	"internal/sandbox/wasm/image":   0,
	"internal/sandbox/wasm/rewrite": 0,
	"internal/sandbox/wasm/wasi":    0,
	"internal/workspace":            0,
	"internal/workspace/fsys":       0,
	"internal/workspace/scan":       0,
	"internal/workspace/git":        0,
	"internal/workspace/view":       0,
	"internal/workspace/publish":    0,
	"internal/workspace/wal":        0,

	"internal/journal/format":    1,
	"internal/journal":           1,
	"internal/journal/sqlite":    1,
	"internal/journal/storetest": 1,
	"internal/quota":             1,
	"internal/tools":             2,
	"internal/program":           1, // starts, bounds, confines and kills other programs
	"internal/program/reap":      0, // every descendant of a process
	"internal/program/lineage":   0, // the ancestors of a process
	"internal/program/cgroup":    0,
	"internal/program/seccomp":   0,
	"internal/program/userns":    0,
	"internal/program/frame":     0,
	"internal/program/confine":   1,
	"internal/program/access":    0,
	"internal/manual":            1, // text that kern help tells
	"internal/files":             1, // knows the workspace by two small interfaces

	"internal/kernel/ledger":     1, // pure: accounts, what fits, in which order calls wait
	"internal/kernel/process":    1, // pure: the fold of one process
	"internal/kernel":            2,
	"internal/staging":           2,
	"internal/syscalls":          3,
	"internal/loop":              4,
	"internal/config":            4, // kern.yaml and agent files
	"internal/workspace/history": 4,
	"internal/gateway":           4,
	"internal/api":               4,
	"internal/cli":               5, // tables, prompts and progress of the command line
	"internal/mockprovider":      4, // a provider for tests and demos
	"internal/mockprovider/load": 4,
	"internal/host":              5, // joins everything
	"internal/daemon":            6, // one for each data directory
	"":                           6,
	"internal/demo":              7, // a caller of the command line
	"cmd/kern":                   8,
}

// among lists imports within one rank that are meant.
var among = map[string][]string{
	"internal/kernel/process":      {"internal/kernel/ledger"},
	"model":                        {"internal/jsontext", "internal/provider/tokens", "internal/yamlfile"},
	"internal/provider":            {"model", "internal/jsontext", "internal/provider/catalog", "internal/provider/format", "internal/provider/transport", "internal/yamlfile"},
	"internal/provider/tokens":     {"internal/recent"},
	"internal/provider/catalog":    {"model", "internal/jsontext", "internal/provider/tokens", "internal/yamlfile"},
	"internal/provider/format":     {"abi", "model", "internal/jsontext", "internal/provider/tariff", "internal/provider/tokens"},
	"internal/provider/tariff":     {"model", "internal/jsontext", "internal/provider/tokens"},
	"internal/schema":              {"internal/jsontext"},
	"internal/yamlfile":            {"internal/jsontext"},
	"internal/journal":             {"internal/journal/format"},
	"internal/journal/storetest":   {"internal/journal", "internal/journal/format"},
	"internal/journal/sqlite":      {"internal/journal", "internal/journal/format"},
	"internal/sandbox/sandboxtest": {"internal/sandbox"},
	"internal/provider/modeltest":  {"model"},
	"internal/sandbox/wasm":        {"internal/sandbox"},
	"internal/sandbox/wasm/wasi":   {"internal/sandbox"},
	"internal/sandbox/jail":        {"internal/sandbox"},
	"internal/workspace/scan":      {"internal/workspace/fsys"},
	"internal/workspace/git":       {"internal/workspace/fsys"},
	"internal/workspace/view":      {"internal/workspace/fsys"},
	"internal/workspace/publish":   {"internal/workspace/fsys"},
	"internal/workspace/wal":       {"internal/workspace/fsys"},
}

// forbidden are imports that are refused everywhere, or outside the packages
// named, with the reason.
var forbidden = []struct {
	path, why string
	except    []string
}{
	{"C", "cgo: the binary is one file that cross-compiles", nil},
	{"log", "diagnostics are errors and records; there is no second log", []string{"cmd/kern"}},
	{"math/rand", "randomness is a field of a record; see DESIGN of admit", nil},
	{"modernc.org/sqlite", "nothing above the journal knows which store it is", []string{"internal/journal/sqlite"}},
	{"github.com/spf13/cobra", "only the command line speaks cobra", []string{"cmd/kern"}},
}

// pureFiles may not read the clock, start goroutines or do input and output:
// what they decide follows from records alone.
var pureFiles = []string{"internal/kernel/admit.go", "internal/kernel/ledger/*.go", "internal/kernel/process/*.go",
	"internal/quota/window.go", "internal/quota/bucket.go", "internal/quota/backoff.go", "internal/quota/outage.go", "internal/quota/estimate.go", "internal/quota/queue.go", "internal/quota/sched.go", "internal/quota/limits.go"}

const module = "github.com/kern-run/kern"

func rel(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// counted says whether a package is part of the house: benchmarks, tools,
// examples and tests from outside may import what they like.
func counted(name string) bool {
	for _, p := range []string{"bench", "tools", "examples", "test"} {
		if name == p || strings.HasPrefix(name, p+"/") {
			return false
		}
	}
	return true
}

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Doc,GoFiles,TestImports,XTestImports,TestGoFiles,XTestGoFiles", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p struct {
			ImportPath, Doc                                                        string
			Imports, GoFiles, TestImports, XTestImports, TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		name, _ := rel(p.ImportPath)
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s: no package comment", p.ImportPath)
		}
		const leaktest = module + "/internal/leaktest"
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 && p.ImportPath != leaktest && !slices.Contains(append(p.TestImports, p.XTestImports...), leaktest) {
			t.Errorf("%s: its tests do not look for what they leave behind: func TestMain(m *testing.M) { leaktest.Main(m) }", p.ImportPath)
		}
		if !counted(name) {
			continue
		}
		rank, known := ranks[name]
		if !known {
			t.Errorf("%s: not in the list of packages", p.ImportPath)
		}
		for _, i := range p.Imports {
			for _, f := range forbidden {
				if i == f.path && !slices.Contains(f.except, name) {
					t.Errorf("%s imports %s: %s", name, i, f.why)
				}
			}
			dep, ours := rel(i)
			if !ours || slices.Contains(among[name], dep) || strings.HasPrefix(dep, name+"/") && name != "" {
				continue // its own rooms are its own business
			}
			if r, ok := ranks[dep]; !ok || r >= rank {
				t.Errorf("%s (rank %d) imports %s (rank %d)", name, rank, dep, r)
			}
		}
	}
}

// TestPure looks for what a pure file may not hold.
func TestPure(t *testing.T) {
	var names []string
	for _, pattern := range pureFiles {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no file %s: %v", pattern, err)
		}
		names = append(names, found...)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			switch path := strings.Trim(i.Path.Value, `"`); path {
			case "os", "io", "time", "context", "sync", "net", "math/rand", "math/rand/v2":
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine", name)
			}
			return true
		})
	}
}

// The largest things this module may hold. Raising one is a design decision:
// change the number and say why in the same commit.
const (
	maxFunc    = 80 // lines in a function
	maxMethods = 25 // methods of a type: declared, promoted, and functions that take it first
	maxFields  = 20 // fields in a struct, embedded ones counted
	maxIface   = 5  // methods in an interface, embedded ones counted
	maxDepth   = 10 // imports on the longest chain of own packages; the aim is 7
)

// larger are types that are larger, with what they have and the reason. They may
// shrink and never grow, and an entry that is not needed any more fails the test.
var larger = map[string]struct {
	methods, fields int
	why             string
}{
	"internal/host.Kernel":              {71, 28, "it promotes both halves of the kernel; spawning, replay and tools of Go want types of their own"},
	"internal/host.running":             {47, 9, "both halves of the kernel, for callers that act and look"},
	"internal/journal/format.wire":      {46, 6, "one function for each kind of value reads and writes it"},
	"internal/sandbox/wasm/wasi.System": {45, 11, "the functions of WASI take it first: they are the rows of a table, one for each import"},
	"internal/provider/format.answer":   {36, 30, "it reads the answers of all formats; each format wants a file and a type of its own"},
	"internal/provider/tariff.weigher":  {31, 7, "one function for each part of a request weighs it"},
	"internal/gateway.Gateway":          {27, 17, "its routes are methods; the listener wants a type of its own"},
	"internal/quota.call":               {9, 23, "a waiting call with its weight and its outcome; the two want types of their own"},
	"internal/journal.Store":            {9, 0, "one contract that every store implements whole; the tests override single methods"},
	"internal/files.FS":                 {8, 0, "a file system has these operations; both halves are always needed together"},
	"internal/sandbox.FS":               {8, 0, "a file system has these operations; os.Root has nearly all of them"},
	"internal/gateway.Kernel":           {8, 0, "the calls and the queries that the gateway makes"},
	"internal/gateway.View":             {6, 0, "the queries that the gateway makes"},
}

func TestShape(t *testing.T) {
	code, err := shape.Read(".", module)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range code.Funcs {
		if f.Lines > maxFunc {
			t.Errorf("%s: function %s has %d lines, at most %d", f.Where, f.Name, f.Lines, maxFunc)
		}
	}
	needed := map[string]bool{}
	for _, x := range code.Types {
		if !counted(x.Dir) {
			continue
		}
		methods, fields := maxMethods, maxFields
		if x.IsIface {
			methods = maxIface
		}
		if x.Methods <= methods && x.Fields <= fields {
			continue
		}
		name := x.Dir + "." + x.Name
		if more, ok := larger[name]; ok {
			needed[name] = true
			methods, fields = max(methods, more.methods), max(fields, more.fields)
		}
		if x.Methods > methods || x.Fields > fields {
			t.Errorf("%s: %s has %d methods (%d of its own) and %d fields, at most %d and %d",
				x.Where, x.Name, x.Methods, x.Declared, x.Fields, methods, fields)
		}
	}
	for name := range larger {
		if !needed[name] {
			t.Errorf("%s is within the limits: its entry in larger can go", name)
		}
	}
}

// TestDepth holds how many packages one must know to follow an import.
func TestDepth(t *testing.T) {
	code, err := shape.Read(".", module)
	if err != nil {
		t.Fatal(err)
	}
	if n, chain := code.Depth(counted); n > maxDepth {
		t.Errorf("%d imports below each other, at most %d: %s", n, maxDepth, strings.Join(chain, " > "))
	}
}

func eachFile(t *testing.T, f func(name string)) {
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && name != ".") {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		if here, err := build.Default.MatchFile(filepath.Dir(name), d.Name()); err != nil || !here {
			return err // its twin for this system is counted
		}
		f(name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCodes holds that every code is explained once, and that something gives
// it: a code is frozen, so one that nothing gives would be there for ever.
func TestCodes(t *testing.T) {
	explained := map[abi.Code]int{}
	for _, c := range abi.Codes {
		explained[c.Code]++
	}
	given := map[string]bool{}
	declared := map[string]abi.Code{}
	eachFile(t, func(name string) {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr: // abi.ToolFailed
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "abi" {
					given[n.Sel.Name] = true
				}
			case *ast.ValueSpec:
				if len(n.Values) != 1 {
					break
				}
				v, ok := n.Values[0].(*ast.BasicLit)
				if typ, is := n.Type.(*ast.Ident); !ok || !is || typ.Name != "Code" {
					break
				}
				if text := strings.Trim(v.Value, `"`); name == "abi/error.go" {
					declared[n.Names[0].Name] = abi.Code(text)
				} else { // a leaf that knows nothing of abi spells it out
					given[text] = true
				}
			}
			return true
		})
	})
	if len(declared) != len(abi.Codes) {
		t.Errorf("%d codes are declared, and %d explained", len(declared), len(abi.Codes))
	}
	for name, code := range declared {
		_, limit := abi.LimitOf(code)
		if explained[code] != 1 || !limit && !given[name] && !given[string(code)] {
			t.Errorf("%s: explained %d times, and want once; given by something: %v", code, explained[code], limit || given[name] || given[string(code)])
		}
	}
}

// TestLibcPin holds that the C library of the embedded store is the one it was
// made with: any other may corrupt memory.
func TestLibcPin(t *testing.T) {
	want, err := exec.Command("go", "list", "-m", "-f", "{{.GoMod}}", "modernc.org/sqlite").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(strings.TrimSpace(string(want)))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	libc := regexp.MustCompile(`modernc\.org/libc (v\S+)`)
	a, b := libc.FindSubmatch(theirs), libc.FindSubmatch(ours)
	if a == nil || b == nil || string(a[1]) != string(b[1]) {
		t.Errorf("go.mod has modernc.org/libc %q, modernc.org/sqlite was made with %q", b, a)
	}
}

// TestWords holds that the repository speaks of Kern alone, and of no machine.
func TestWords(t *testing.T) {
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Fatal(err)
	}
	bad := regexp.MustCompile(`(^|[^\w.])/(root|home/[a-z]+)/\w|\bTODO\b|\bFIXME\b|proxy\.golang\.org|registry\.npmjs|pypi\.org`)
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if name == "policy_test.go" || strings.Contains(name, "testdata/") || filepath.Ext(name) == ".sum" {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil || strings.ContainsRune(string(b), 0) {
			continue // deleted in the work tree, or not text
		}
		for i, line := range strings.Split(string(b), "\n") {
			if m := bad.FindString(line); m != "" {
				t.Errorf("%s:%d: %q", name, i+1, m)
			}
		}
	}
}

// recorded are texts that journals hold: a change would break the replay of older ones.
var recorded = []string{"internal/syscalls/table.go"}

// TestProse holds the mechanical part of the rules for prose in comments, in texts of
// the code and in Markdown.
func TestProse(t *testing.T) {
	faults, err := shape.ProseFaults(".", module)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		if file, _, _ := strings.Cut(f, ":"); !slices.Contains(recorded, file) {
			t.Error(f)
		}
	}
}
