package confine

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// What these tests were seen to catch: links not followed, who interprets a
// script not shown, a tree shown that holds a secret, what is hidden shown by
// PATH.

// tree makes files, links (to what stands behind the arrow) and directories
// (which end in a slash) below a new directory.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		name, to, link := strings.Cut(n, " -> ")
		name, text, _ := strings.Cut(name, " = ")
		at := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		switch {
		case link:
			err = os.Symlink(strings.ReplaceAll(to, "$", top), at)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		default:
			err = os.WriteFile(at, []byte(strings.ReplaceAll(text, "$", top)), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return top
}

func TestNew(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // there is no fence, and no such path
	}
	top := tree(t, "house/proj/", "house/.ssh/id", "house/proj/data/", "house/tool/python3 -> $/house/.versions/3/bin/python3", "house/.versions/3/bin/python3 = binary",
		"house/.versions/3/lib/", "house/.local/bin/agent = #!$/house/venv/bin/python\n", "house/venv/bin/python -> python3", "house/venv/bin/python3 -> ../../tool/python3",
		"house/venv/lib/", "house/.cargo/bin/", "house/.cargo/credentials.toml", "house/.pyenv/shims/", "house/.pyenv/versions/", "house/.local/lib/", "house/.local/share/keyrings/", "house/.hidden/bin/", "extra/",
		"keep/", "house/proj/out -> ../.ssh", "house/proj/id -> $/house/.ssh/id", "house/proj/etc -> /etc", "keep/far -> $/extra", "house/app/secret", "house/app/node_modules/.bin/", "moved -> $/house", "keep/tool/")
	in := func(names ...string) (all []string) {
		for _, n := range names {
			all = append(all, filepath.Join(top, n))
		}
		return all
	}
	w := Options{Dir: top + "/house/proj", Home: top + "/house", Path: top + "/house/.local/bin/agent", Hide: in("house/proj/data", "house/.hidden", "nothing"), Base: "http://127.0.0.1:4400", Socket: top + "/s",
		Env: []string{"PATH=" + strings.Join(append(in("house/.cargo/bin", "house/.pyenv/shims", "house/app/node_modules/.bin", "house/proj/data", "house/.hidden/bin", "nothing"), "/usr/bin", "/"), ":"), "A=b"}, Show: in("extra")}
	p, err := NewPlan(w)
	if err != nil {
		t.Fatal(err)
	}
	want := in("extra", "house/.cargo/bin", "house/.local/bin", "house/.pyenv", "house/.versions/3", "house/app/node_modules", "house/tool", "house/venv")
	if !slices.Equal(p.Show, want) {
		t.Errorf("it shows\n%s\nwant\n%s", strings.Join(p.Show, "\n"), strings.Join(want, "\n"))
	}
	if p.Port != 4400 || p.Home != top+"/house" || !slices.Equal(p.Hide, in("house/proj/data", "house/.hidden")) {
		t.Errorf("%+v", p)
	}
	if err := os.Mkdir(top+"/public", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(top+"/public", 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(w *Options){
		"everybody's: other": func(w *Options) { w.Dir = top + "/public" },
		"say --write /var":   func(w *Options) { w.Dir, w.Write = "/var", in("public", "keep") },
		"public is not for":  func(w *Options) { w.Keep = top + "/public" },
		"a link to /tmp":     func(w *Options) { w.Dir, w.Write = "/var/tmp", []string{"/var/tmp"} },
		"too much":           func(w *Options) { w.Dir = w.Home },
		"the system's":       func(w *Options) { w.Dir = "/usr" },
		"no program may":     func(w *Options) { w.Dir = top + "/house/proj/data" },
		"a jail has":         func(w *Options) { w.Show = []string{"/"} },
		"cannot be shown":    func(w *Options) { w.Show = in("house/proj/data") },
		"no such file":       func(w *Options) { w.Show = in("nothing") },
		"reaches only one":   func(w *Options) { w.Base = "https://gateway.example:443" },
		"has no socket":      func(w *Options) { w.Socket = "" },
		"house/.ssh/id, which a jail does not show": func(w *Options) { w.Path = top + "/house/proj/id" }, // a link there
		"house/app/secret, which a jail does not":   func(w *Options) { w.Path = top + "/house/app/secret"; w.Home = top + "/house/app/secret/.." },
		"at http://127.0.":                          func(w *Options) { w.Base = "http://127.0.0.1" },

		"write in: it is too much": func(w *Options) { w.Write = in("") },
		"house is not for":         func(w *Options) { w.Write = in("house") },
		"/ is not for":             func(w *Options) { w.Write = []string{"/"} },
		"it is the system's":       func(w *Options) { w.Write = []string{"/etc/hosts"} },
		"which no program may see": func(w *Options) { w.Write = in("house/.hidden/bin") },
		"expected a directory":     func(w *Options) { w.Keep = top + "/house/.ssh/id" },
		"keep is not for":          func(w *Options) { w.Home, w.Keep = top+"/keep", top+"/keep" },
		"/out/id leads to":         func(w *Options) { w.Show = in("house/proj/out/id") },
		"/id leads to":             func(w *Options) { w.Write = in("house/proj/id") },
		"/far leads to":            func(w *Options) { w.Write = in("keep", "keep/far") },
		"leads to /etc":            func(w *Options) { w.Keep = top + "/house/proj/etc" },
	} {
		c := w
		change(&c)
		if _, err := NewPlan(c); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q, got %v", what, err)
		}
	}
	said := w
	said.Dir, said.Write, said.Env = top+"/public", in("public"), []string{"PATH=" + top + "/public"}
	if p, err := NewPlan(said); err != nil || p.Dir != top+"/public" || len(p.Write) > 0 {
		t.Errorf("a shared directory that is named: %+v, %v", p, err)
	}
	said.Dir, said.Write = w.Dir, nil
	if p, err := NewPlan(said); err != nil || slices.Contains(p.Show, top+"/public") {
		t.Errorf("a shared directory in PATH: %+v, %v", p, err)
	}
	for line, want := range map[string][]string{ // of a script where programs write
		"#!$/house/venv/bin/python $/house/.ssh/none":         in("house/.versions/3", "house/tool", "house/venv"),
		"#!$/house/.ssh/id":                                   nil,
		"#!$/house/.ssh/none":                                 nil,
		"#!/usr/bin/env -S $/house/.cargo/credentials.toml x": nil,
	} {
		c := w
		c.Path, c.Env, c.Show = top+"/house/proj/script", nil, nil
		if err := os.WriteFile(c.Path, []byte(strings.ReplaceAll(line, "$", top)), 0o755); err != nil {
			t.Fatal(err)
		}
		if p, err := NewPlan(c); err != nil || !slices.Equal(p.Show, want) {
			t.Errorf("%s shows %q, %v; want %q", line, p.Show, err, want)
		}
	}
	for from, to := range map[string]string{"run": "lib/run", "lib/run": top + "/house/tool/python3", "lib/python": top + "/house/venv/bin/python"} {
		if err := os.MkdirAll(top+"/house/proj/lib", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, top+"/house/proj/"+from); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{"run": nil, "lib/python": in("house/.versions/3", "house/tool", "house/venv")} {
		c := w
		c.Path, c.Env, c.Show = top+"/house/proj/"+name, nil, nil
		if p, err := NewPlan(c); err == nil && !slices.Equal(p.Show, want) || (err == nil) != (want != nil) {
			t.Errorf("%s shows %+v, %v; want %q", name, p, err, want)
		}
	}
	if err := os.Symlink("../.ssh", top+"/house/proj/bin"); err != nil { // in the place of one that was there
		t.Fatal(err)
	}
	swapped := w
	swapped.Path, swapped.Show, swapped.Env = "", nil, []string{"PATH=" + top + "/house/proj/bin", "VIRTUAL_ENV=" + top + "/house/proj/bin"}
	if p, err := NewPlan(swapped); err != nil || len(p.Show) > 0 {
		t.Errorf("a directory that was swapped for a link shows %+v, %v", p, err)
	}
	w.Keep, w.Write = top+"/keep", in("house/.ssh/id", "house/proj/data/..", "house/tool", "house/.cargo")
	w.Show = in("extra", "house/tool", "keep/tool")
	if p, err = NewPlan(w); err != nil || !slices.Equal(p.Write, in("keep", "house/.ssh/id", "house/tool", "house/.cargo")) {
		t.Errorf("it may write in %q, %v", p.Write, err)
	}
	if want := in("extra", "house/.local/bin", "house/.pyenv", "house/.versions/3", "house/app/node_modules", "house/venv", "keep/tool"); !slices.Equal(p.Show, want) {
		t.Errorf("with what it may write in it is shown\n%s\nwant\n%s", strings.Join(p.Show, "\n"), strings.Join(want, "\n"))
	}
	for _, c := range []struct{ home, keep, want string }{{top + "/house", "", top + "/house"}, {top + "/moved", "", top + "/house"}, {top + "/house", top + "/keep", top + "/keep"},
		{"", "", "/tmp"}, {"/", "", "/tmp"}, {"/no/such/home", "", "/tmp"}, {"/usr/bin", "", "/tmp"}} {
		w := Options{Dir: w.Dir, Home: c.home, Keep: c.keep, Base: w.Base, Socket: w.Socket}
		if p, err = NewPlan(w); err != nil {
			t.Fatal(err)
		}
		env := p.Environ([]string{"TMPDIR=/elsewhere", "HOME=" + c.home, "PWD=/link", "A=b"})
		if want := []string{"TMPDIR=/tmp", "PWD=" + p.Dir, "A=b", "HOME=" + c.want}; !slices.Equal(env, want) {
			t.Errorf("%+v: %q", c, env)
		}
	}
}
