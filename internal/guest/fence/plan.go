// Package fence runs a program of somebody else's in a place of its own, from
// which the only way out is the gateway, and in which it still feels at home:
// it has its terminal, its session and its directory.
//
// The program is in user, mount, network, process and IPC namespaces of its
// own. It sees the system's programs and libraries, the settings in /etc that
// everybody may read, what is needed to start it and what it was shown, all of
// it read-only; it may write in the directory it is started in, and in a home
// and a /tmp that are empty and go when it ends. Nothing else of the host has a
// name in there: no other file, no socket, no process. Its network is a
// loopback on which one port listens, that of the gateway; who listens is
// outside, and forwards to the gateway's socket. It has no privilege, cannot
// get any, and cannot put words into the terminal's input.
//
// What a host cannot do is an error that says what is missing: there is no
// weaker fence.
package fence

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Wish is what is known when a fence is planned.
type Wish struct {
	Dir    string   // where the program starts
	Home   string   // of the user; "" if there is none
	Path   string   // of the program
	Env    []string // of the program
	Show   []string // to be seen beside what every program sees
	Hide   []string // never to be seen
	Base   string   // the address of the gateway, as the program has it
	Socket string   // of the gateway
}

// A Plan is what a fence is built from: absolute names without links.
type Plan struct {
	Dir    string   `json:"dir"`
	Home   string   `json:"home,omitempty"`
	Show   []string `json:"show"`
	Hide   []string `json:"hide"`
	Port   int      `json:"port"`
	Socket string   `json:"socket"`
}

// system is what every program sees. A name that is a link is one inside too.
var system = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/gnu/store"}

// ours are places that are made new inside; what the host has there is not seen.
var ours = []string{"/proc", "/sys", "/dev", "/run", "/boot"}

// New plans a fence.
func New(w Wish) (*Plan, error) {
	u, err := url.Parse(w.Base)
	if err != nil {
		return nil, err
	}
	p := &Plan{Socket: w.Socket}
	if p.Port, err = strconv.Atoi(u.Port()); err != nil || u.Hostname() != "127.0.0.1" || u.Scheme != "http" {
		return nil, fmt.Errorf("the gateway is at %s, and a program in a jail reaches only one at http://127.0.0.1:PORT", w.Base)
	}
	if w.Socket == "" {
		return nil, fmt.Errorf("the gateway at %s has no socket to forward to", w.Base)
	}
	if p.Dir, err = real(w.Dir); err != nil {
		return nil, err
	}
	if w.Home != "" && w.Home != "/" {
		if p.Home, err = real(w.Home); err != nil {
			p.Home = "" // there is nothing to see
		}
	}
	for _, h := range w.Hide {
		if h, err = real(h); err != nil {
			continue // what is not there is not seen
		}
		if within(p.Dir, h) {
			return nil, fmt.Errorf("the directory %s is below %s, which no program may see", p.Dir, h)
		}
		p.Hide = append(p.Hide, h)
	}
	if err := p.place(); err != nil {
		return nil, err
	}
	for _, s := range w.Show {
		if s, err = real(s); err != nil {
			return nil, err
		}
		if s == "/" || slices.ContainsFunc(ours, func(d string) bool { return within(s, d) }) {
			return nil, fmt.Errorf("%s cannot be shown: a jail has its own", s)
		}
		if i := slices.IndexFunc(p.Hide, func(h string) bool { return within(s, h) }); i >= 0 {
			return nil, fmt.Errorf("%s cannot be shown: it is below %s, which no program may see", s, p.Hide[i])
		}
		p.Show = append(p.Show, s)
	}
	p.needs(w)
	slices.Sort(p.Show)
	var last string
	p.Show = slices.DeleteFunc(p.Show, func(s string) bool {
		again := last != "" && within(s, last)
		if !again {
			last = s
		}
		return again
	})
	return p, nil
}

// place refuses directories that are too much to write in.
func (p *Plan) place() error {
	if p.Dir == "/" || p.Home != "" && within(p.Home, p.Dir) {
		return fmt.Errorf("a program in a jail may write in the directory it is started in, and %s is too much: start it in one of its own", p.Dir)
	}
	for _, d := range slices.Concat(system, ours) {
		if within(p.Dir, d) {
			return fmt.Errorf("a program in a jail may write in the directory it is started in, and %s is the system's: start it in one of its own", p.Dir)
		}
	}
	return nil
}

// needs shows what it takes to start the program: where it is, wherever links
// lead from there, who interprets it, and what PATH and its environment name.
func (p *Plan) needs(w Wish) {
	p.follow(w.Path, 0)
	for _, v := range w.Env {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "PATH":
			for _, dir := range filepath.SplitList(value) {
				p.tree(dir)
			}
		case "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "GOROOT", "JAVA_HOME", "RUSTUP_HOME":
			p.offer(value)
		}
	}
}

// follow shows a program through all its links and interpreters.
func (p *Plan) follow(name string, deep int) {
	if name == "" || deep > 20 {
		return
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return
	}
	p.tree(filepath.Dir(name))
	if to, err := os.Readlink(name); err == nil {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		p.follow(to, deep+1)
		return
	}
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := f.Read(head)
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	if rest, ok := bytes.CutPrefix(line, []byte("#!")); ok {
		for _, word := range strings.Fields(string(rest)) {
			if filepath.IsAbs(word) {
				p.follow(word, deep+1)
			}
		}
	}
}

// tree shows a directory of programs with the tree it is part of, if it is of
// one: bin beside lib, or the shims of a version manager. What lies about in
// others may be a secret.
func (p *Plan) tree(dir string) {
	p.offer(dir)
	up := filepath.Dir(dir)
	if _, err := os.Stat(filepath.Join(up, "lib")); err == nil || filepath.Base(dir) == "shims" {
		if filepath.Base(up) != ".local" {
			p.offer(up)
		}
	}
}

// offer shows a directory, unless that is too much or of no use.
func (p *Plan) offer(dir string) {
	dir, err := real(dir)
	if err != nil || dir == "/" || dir == os.TempDir() {
		return
	}
	for _, more := range append([]string{p.Home, p.Dir}, p.Hide...) {
		if more != "" && within(more, dir) {
			return // with it would come what is not to be seen
		}
	}
	for _, d := range slices.Concat(system, ours, p.Hide, []string{p.Dir}) {
		if within(dir, d) {
			return
		}
	}
	p.Show = append(p.Show, dir)
}

// Environ is an environment as it is true inside.
func (p *Plan) Environ(env []string) []string {
	out := slices.Clone(env)
	for i, v := range out {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "TMPDIR", "TMP", "TEMP":
			out[i] = name + "=/tmp"
		case "PWD":
			out[i] = name + "=" + p.Dir
		}
	}
	return out
}

// within reports whether a name is dir or below it.
func within(name, dir string) bool {
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}

func real(name string) (string, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(name)
}
