package config

import (
	"crypto/sha256"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/catalog"
	"github.com/kern-run/kern/internal/provider/transport"
	"github.com/kern-run/kern/internal/yamlfile"
)

// Settings are the configuration of a host, as read from kern.yaml. The page config
// of the package manual shows every key.
type Settings struct {
	File      string // the path of kern.yaml; empty: no file was read
	Providers map[string]provider.Provider
	Traffic   map[string]Traffic // limits by the name of the provider
	PriceFile string
	Yield     string
	MinOutput abi.MinOutput
	Gateway   Gateway
	Spaces    WorkspaceRules
	Journal   JournalRules

	notes  []string // warnings: valid settings that are probably not intended
	prices *catalog.Prices
	sum    [sha256.Size]byte // SHA-256 of kern.yaml and the price file
}

// ReadSettings reads kern.yaml. A missing file is no error: the settings are then
// the defaults.
func ReadSettings(file string) (s Settings, err error) {
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return s, nil
	} else if err != nil {
		return s, err
	}
	d, root, err := yamlfile.Parse(file, data)
	if err != nil {
		return s, err
	}
	s = Settings{File: file, Providers: make(map[string]provider.Provider), Traffic: make(map[string]Traffic), sum: sha256.Sum256(data)}
	err = d.Mapping(root, "the settings", []string{"providers", "gateway", "workspaces", "journal", "prices", "yield", "min_output"}, map[string]yamlfile.Field{
		"providers":  func(n ast.Node, what string) error { return s.readProviders(d, n, what) },
		"gateway":    func(n ast.Node, what string) error { return s.readGateway(d, n, what) },
		"workspaces": func(n ast.Node, what string) error { return s.Spaces.read(d, n, what) },
		"journal":    func(n ast.Node, what string) error { return s.Journal.read(d, n, what) },
		"prices":     func(n ast.Node, what string) error { return s.readPrices(d, n, what) },
		"yield": func(n ast.Node, what string) (err error) {
			if s.Yield, err = d.Text(n, what); err == nil && !slices.Contains([]string{"ask", "deny"}, s.Yield) {
				err = d.Errorf(n, "%s is %q, expected ask or deny", what, s.Yield)
			}
			return err
		},
		"min_output": func(n ast.Node, what string) error { return readMinOutput(d, n, what, &s.MinOutput) },
	})
	return s, err
}

// readMinOutput reads the least output that a model call is worth.
func readMinOutput(d *yamlfile.Document, n ast.Node, what string, to *abi.MinOutput) error {
	text, err := d.Scalar(n, what)
	if err != nil {
		return err
	}
	if *to, err = abi.ParseMinOutput(text); err != nil {
		return d.Errorf(n, "%v", err)
	}
	return nil
}

// beside returns a field that reads the name of a file. A relative name begins at
// the directory of kern.yaml.
func (s *Settings) beside(d *yamlfile.Document, to *string) yamlfile.Field {
	return func(n ast.Node, what string) (err error) {
		if *to, err = d.Text(n, what); *to != "" && !filepath.IsAbs(*to) {
			*to = filepath.Join(filepath.Dir(s.File), *to)
		}
		return err
	}
}

func (s *Settings) readPrices(d *yamlfile.Document, n ast.Node, what string) (err error) {
	if err = s.beside(d, &s.PriceFile)(n, what); err != nil {
		return err
	}
	data, err := os.ReadFile(s.PriceFile)
	if err != nil {
		return d.Errorf(n, "%v", err)
	}
	s.sum = sha256.Sum256(append(s.sum[:], data...))
	if s.prices, err = catalog.LoadPrices(s.PriceFile, data); err != nil {
		return err
	}
	return nil
}

// Models returns the configuration of providers and models for package provider.
func (s *Settings) Models(getenv func(string) string) provider.Config {
	return provider.Config{Getenv: getenv, Providers: s.Providers, Prices: s.prices}
}

// Secrets returns the values that no tool may return: every key and secret header
// of the settings, and the keys of openai and anthropic.
func (s *Settings) Secrets(getenv func(string) string) []string {
	list := s.Keys(getenv)
	for _, n := range []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY"} {
		list = append(list, getenv(n))
	}
	return slices.DeleteFunc(list, short)
}

// Keys returns the keys and secret headers that the settings name, as far as they
// can be read. It leaves out short ones, because any text may contain them.
func (s *Settings) Keys(getenv func(string) string) (list []string) {
	for _, p := range s.Providers {
		for _, from := range sources(&p) {
			held := ""
			if from.Env != "" {
				held = getenv(from.Env)
			} else if b, err := os.ReadFile(from.File); err == nil {
				held = string(b)
			}
			list = append(append(list, held), transport.Words(strings.TrimSpace(held))...)
		}
	}
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), short)
}

// KeyFiles returns the files that hold keys and secret headers.
func (s *Settings) KeyFiles() (list []string) {
	for _, p := range s.Providers {
		for _, from := range sources(&p) {
			if from.File != "" {
				list = append(list, from.File)
			}
		}
	}
	return list
}

// Warnings describes settings that are valid but probably not intended: a missing
// key, or a model that a fallback does not list. A daemon starts with them.
func (s *Settings) Warnings(getenv func(string) string) (list []string) {
	v := s.View(getenv)
	for _, name := range slices.Sorted(maps.Keys(s.Providers)) {
		p, q := s.Providers[name], v.Providers[name]
		if (p.KeyEnv != "" || p.KeyFile != "") && missing(q.Key) {
			list = append(list, "the key of the provider "+name+" is "+q.Key+"; what is asked of it is refused")
		}
		for _, header := range slices.Sorted(maps.Keys(q.Headers)) {
			if where := q.Headers[header]; missing(where) {
				list = append(list, "the header "+header+" of the provider "+name+" is "+where+"; what is asked of it is refused")
			}
		}
	}
	return append(list, s.notes...)
}

// short reports whether a secret is so short that any text may contain it.
func short(secret string) bool { return len(secret) < 8 }
