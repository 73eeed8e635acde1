// Package confine runs a program of somebody else's in a place of its own, from
// which the only way out is the gateway, and in which it still feels at home:
// it has its terminal, its session and its directory.
//
// The program is in user, mount, network, process and IPC namespaces of its
// own. It sees the system's programs and libraries, the settings in /etc that
// everybody may read, what is needed to start it and what it was shown, all of
// it read-only; it may write in the directory it is started in, in what it was
// given to write in, and in a home and a /tmp that are empty and go when it
// ends. Nothing else of the host has a
// name in there: no other file, no socket, no process. Its network is a
// loopback on which one port listens, that of the gateway; who listens is
// outside, and forwards to the gateway's socket. It has no privilege, cannot
// get any, and cannot put words into the terminal's input.
//
// What a host cannot do is an error that says what is missing: there is no
// weaker fence.
package confine

import (
	"bytes"
	"cmp"
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
	Keep   string   // a directory that is its home and stays; "": an empty one that goes
	Path   string   // of the program
	Env    []string // of the program
	Show   []string // to be seen beside what every program sees
	Write  []string // to be written in beside where it starts
	Hide   []string // never to be seen
	Base   string   // the address of the gateway, as the program has it
	Socket string   // of the gateway
}

// A Plan is what a fence is built from: absolute names without links.
type Plan struct {
	Dir    string   `json:"dir"`
	Home   string   `json:"home,omitempty"` // an empty place; "": there is none but /tmp
	Keep   string   `json:"keep,omitempty"`
	Show   []string `json:"show"`
	Write  []string `json:"write,omitempty"`
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
	if p.Home, err = real(w.Home); err != nil || w.Home == "" || p.taken(p.Home) != "" {
		p.Home = "" // there is nothing to see
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
	if why := p.much(p.Dir); why != "" {
		return nil, fmt.Errorf("a program in a jail may write in the directory it is started in, and %s is %s: start it in one of its own (mkdir work && cd work), and name what it must read beside that with --show", p.Dir, why)
	}
	if err := p.give(w); err != nil {
		return nil, err
	}
	p.needs(w)
	if err := p.sees(w.Path); err != nil {
		return nil, err
	}
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

// taken says whose a name is, if not the user's.
func (p *Plan) taken(name string) string {
	for _, d := range slices.Concat(system, ours) {
		if within(name, d) || name == "/" {
			return "the system's"
		}
	}
	return ""
}

// much says why a directory is too much to write in.
func (p *Plan) much(dir string) string {
	if p.Home != "" && within(p.Home, dir) || dir == "/" {
		return "too much"
	}
	return p.taken(dir)
}

// give adds what the program was given to read and to write in.
func (p *Plan) give(w Wish) (err error) {
	if w.Keep != "" {
		if p.Keep, err = p.named(w.Keep); err != nil {
			return err
		}
		if fi, err := os.Stat(p.Keep); err != nil || !fi.IsDir() {
			return fmt.Errorf("%s cannot be its home: expected a directory", p.Keep)
		}
	}
	for _, s := range slices.Concat([]string{p.Keep}, w.Write) {
		if s == "" {
			continue
		}
		if s, err = p.named(s); err != nil {
			return err
		}
		if why := p.much(s); why != "" {
			return fmt.Errorf("%s is not for a program in a jail to write in: it is %s", s, why)
		}
		if !within(s, p.Dir) {
			p.Write = append(p.Write, s)
		}
	}
	for _, s := range w.Show {
		if s, err = p.named(s); err != nil {
			return err
		}
		if slices.ContainsFunc(ours, func(d string) bool { return within(s, d) }) || s == "/" {
			return fmt.Errorf("%s cannot be shown: a jail has its own", s)
		}
		if !slices.Contains(p.Write, s) {
			p.Show = append(p.Show, s)
		}
	}
	return nil
}

// named is what somebody named to be given. A link by which a program that
// could write there leads elsewhere is not followed.
func (p *Plan) named(name string) (string, error) {
	s, err := real(name)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(p.Hide, func(h string) bool { return within(s, h) }); i >= 0 {
		return "", fmt.Errorf("%s cannot be shown: it is below %s, which no program may see", s, p.Hide[i])
	}
	if d := p.strays(name, s); d != "" {
		return "", fmt.Errorf("%s leads to %s by a link in %s, where a program may write and could have made it: name %s itself if you mean that", name, s, d, s)
	}
	return s, nil
}

// strays is where programs write and a link stands by which a name leads out of
// there to what it really is; "" if there is none.
func (p *Plan) strays(name, is string) string {
	at, err := filepath.Abs(name)
	for ; err == nil && at != "/"; at = filepath.Dir(at) {
		a, _ := real(at)
		for _, d := range slices.Concat([]string{p.Dir}, p.Write) {
			if within(a, d) && !within(is, d) {
				return d
			}
		}
	}
	return ""
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

// sees is an error where a program is at no place that it sees.
func (p *Plan) sees(path string) error {
	at, err := real(path)
	if path == "" || err != nil {
		return nil // then there is none to start
	}
	seen := slices.Concat(system, p.Show, p.Write, []string{p.Dir})
	if !slices.ContainsFunc(seen, func(d string) bool { return within(at, d) }) {
		return fmt.Errorf("the program is at %s, which a jail does not show: name it with --show, or the directory that it is part of", at)
	}
	return nil
}

// follow shows a program through all its links and interpreters. What names no
// program shows nothing: the program that ran before may have written the name.
func (p *Plan) follow(name string, deep int) {
	if name == "" || deep > 20 {
		return
	}
	name, err := filepath.Abs(name)
	if err != nil {
		return
	}
	if fi, err := os.Stat(name); err != nil || !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0 {
		return
	}
	p.tree(filepath.Dir(name))
	if to, err := os.Readlink(name); err == nil {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		if p.leads(name, to) {
			p.follow(to, deep+1)
		}
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
			if filepath.IsAbs(word) && p.leads(name, word) {
				p.follow(word, deep+1)
			}
		}
	}
}

// leads reports whether a link or a first line may lead to a program: where a
// program may have written it, only out to a place that is for programs.
func (p *Plan) leads(from, to string) bool {
	written := func(name string) bool {
		dir, err := real(filepath.Dir(name))
		return err != nil || slices.ContainsFunc(append(p.Write, p.Dir), func(d string) bool { return within(dir, d) })
	}
	return !written(from) || written(to) || slices.Contains([]string{"bin", "sbin", "shims"}, filepath.Base(filepath.Dir(to)))
}

// tree shows a directory of programs with the tree it is part of, if it is of
// one: bin beside lib, the shims of a version manager, or packages of Node, which
// find each other by their place. What lies about in others may be a secret.
func (p *Plan) tree(dir string) {
	p.offer(dir)
	const modules = "/node_modules"
	if i := strings.Index(dir+"/", modules+"/"); i >= 0 {
		p.offer(dir[:i+len(modules)])
	}
	up := filepath.Dir(dir)
	if _, err := os.Stat(filepath.Join(up, "lib")); err == nil || filepath.Base(dir) == "shims" {
		if filepath.Base(up) != ".local" {
			p.offer(up)
		}
	}
}

// offer shows a directory, unless that is too much or of no use, or the program
// that ran before may have put it in the place of another.
func (p *Plan) offer(name string) {
	dir, err := real(name)
	if err != nil || dir == "/" || dir == os.TempDir() || p.strays(name, dir) != "" {
		return
	}
	for _, more := range append([]string{p.Home, p.Dir}, p.Hide...) {
		if more != "" && within(more, dir) {
			return // with it would come what is not to be seen
		}
	}
	for _, d := range slices.Concat(system, ours, p.Hide, p.Write, []string{p.Dir}) {
		if within(dir, d) {
			return
		}
	}
	p.Show = append(p.Show, dir)
}

// Environ is an environment as it is true inside.
func (p *Plan) Environ(env []string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "HOME=") })
	for i, v := range out {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "TMPDIR", "TMP", "TEMP":
			out[i] = name + "=/tmp"
		case "PWD":
			out[i] = name + "=" + p.Dir
		}
	}
	return append(out, "HOME="+cmp.Or(p.Keep, p.Home, "/tmp"))
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
