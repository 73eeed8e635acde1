package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/config"
	"github.com/kern-run/kern/internal/manual"
)

// key is one of the examples' keys, up to its colon.
var key = regexp.MustCompile(`([a-z_]+):( |\n)`)

// unknown is what a reader says of a key that it does not know.
var unknown = regexp.MustCompile(`unknown key "zz[a-z_]+" in .*, expected (.*)`)

// TestManual holds that the files that kern help shows are read, and that they
// have every key that the readers know.
func TestManual(t *testing.T) {
	readers := map[string]func(file string) error{
		"config": func(file string) error { _, err := config.ReadSettings(file); return err },
		"agent":  func(file string) error { _, err := config.ReadAgent(file); return err },
	}
	for _, p := range manual.Pages() {
		read := readers[p.Name]
		if read == nil {
			continue
		}
		delete(readers, p.Name)
		file := filepath.Join(t.TempDir(), p.Name+".yaml")
		write := func(name, text string) {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(filepath.Join(filepath.Dir(file), "prices.yaml"), `- {model: "openai:x", input: 1, output: 2}`)
		example := regexp.MustCompile(` +# .*`).ReplaceAllString(p.Example(), "")
		write(file, p.Example())
		if err := read(file); err != nil {
			t.Fatal(err)
		}
		var shown, known []string
		for _, at := range key.FindAllStringSubmatchIndex(example, -1) {
			shown = append(shown, example[at[2]:at[3]])
			write(file, example[:at[2]]+"zz"+example[at[2]:])
			if err := read(file); err != nil {
				if m := unknown.FindStringSubmatch(err.Error()); m != nil {
					known = append(known, strings.Split(m[1], ", ")...)
				}
			}
		}
		if len(known) < 50 {
			t.Errorf("%s: the readers named no more than %q", p.Name, known)
		}
		for _, k := range known {
			if !slices.Contains(shown, k) {
				t.Errorf("kern help %s does not show the key %s", p.Name, k)
			}
		}
	}
	for name := range readers {
		t.Errorf("there is no page %s", name)
	}
}
