// Command licences writes the licences of everything in the binary, from the module
// cache: go run ./tools/licences >internal/manual/licences.txt. With -sbom it prints a
// list of the parts as CycloneDX JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

func main() {
	sbom := flag.Bool("sbom", false, "print a CycloneDX list of the parts")
	flag.Parse()
	parts, err := List(".")
	if err == nil && *sbom {
		err = json.NewEncoder(os.Stdout).Encode(bill(parts))
	} else if err == nil {
		_, err = fmt.Print(Text(parts))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

// A Part is a module in the binary, the Go library, or CPython.
type Part struct {
	Name, Version string
	Texts         map[string]string // by the name of the file
}

// systems are those for which Kern is built: each has modules of its own.
var systems = []string{"linux", "darwin", "windows"}

var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([._-].*)?$`)

// List returns the parts of the binary of the module in dir, with Kern itself.
func List(dir string) ([]Part, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	dirs := map[[2]string]string{{"Go", strings.TrimPrefix(runtime.Version(), "go")}: strings.TrimSpace(string(root))}
	for _, system := range systems {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}", "./cmd/kern")
		cmd.Dir, cmd.Stderr, cmd.Env = dir, os.Stderr, append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) == 3 {
				dirs[[2]string{f[0], f[1]}] = f[2]
			}
		}
	}
	var parts []Part
	for name, at := range dirs {
		p := Part{Name: name[0], Version: name[1], Texts: make(map[string]string)}
		entries, err := os.ReadDir(at)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !legal.MatchString(e.Name()) {
				continue
			}
			b, err := os.ReadFile(filepath.Join(at, e.Name()))
			if err != nil {
				return nil, err
			}
			p.Texts[e.Name()] = string(b)
		}
		if len(p.Texts) == 0 {
			return nil, fmt.Errorf("%s has no licence in %s", p.Name, at)
		}
		parts = append(parts, p)
	}
	own, err := os.ReadFile(filepath.Join(dir, "LICENSE"))
	if err != nil {
		return nil, err
	}
	parts = append(parts, Part{"Kern", "", map[string]string{"LICENSE": string(own)}})
	b, err := os.ReadFile(filepath.Join(dir, "internal/sandbox/wasm/image/LICENSES"))
	if err != nil {
		return nil, err
	}
	_, version, _ := strings.Cut(string(b), "Python-")
	version, _, _ = strings.Cut(version, "/")
	parts = append(parts, Part{"CPython", version, map[string]string{"LICENSES": string(b)}})
	slices.SortFunc(parts, func(a, b Part) int { return strings.Compare(a.Name, b.Name) })
	return parts, nil
}

// Text returns the licences of the parts. A text that several parts have stands once.
func Text(parts []Part) string {
	var b strings.Builder
	seen := make(map[string]string)
	for _, p := range parts {
		var files []string
		for f := range p.Texts {
			files = append(files, f)
		}
		slices.Sort(files)
		for _, f := range files {
			fmt.Fprintf(&b, "==== %s, %s\n", strings.TrimSpace(p.Name+" "+p.Version), f)
			text := strings.TrimSpace(strings.ReplaceAll(p.Texts[f], "\r\n", "\n"))
			if first, known := seen[text]; known {
				fmt.Fprintf(&b, "\nThe same as of %s.\n\n", first)
				continue
			}
			seen[text] = p.Name + " " + p.Version
			fmt.Fprintf(&b, "\n%s\n\n", text)
		}
	}
	return b.String()
}

// bill returns the parts as CycloneDX has them.
func bill(parts []Part) any {
	type component struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		Version string `json:"version"`
		PURL    string `json:"purl"`
	}
	list := struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Components []component `json:"components"`
	}{"CycloneDX", "1.5", 1, nil}
	for _, p := range parts {
		kind := "pkg:golang/"
		switch p.Name {
		case "Kern":
			continue // the list is of its parts
		case "Go", "CPython":
			kind = "pkg:generic/"
		}
		list.Components = append(list.Components, component{"library", p.Name, p.Version, kind + strings.ToLower(p.Name) + "@" + p.Version})
	}
	return list
}
