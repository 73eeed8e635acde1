// Package confine builds jails: the jail of kern exec, for the program of a user,
// and the inside of the sandbox jail, for code of a model.
//
// A program under kern exec keeps its terminal, its session and its directory. It
// is in user, mount, network, process and IPC namespaces of its own. The program may
// read, and not write:
//
//   - the programs and libraries of the system,
//   - the settings in /etc that every user may read,
//   - the files that it needs to start,
//   - the paths that the user shows with --show.
//
// The program may write to the directory where it starts and to the paths that the
// user names. It may also write to an empty home and /tmp, which disappear with it. No
// other file, socket or process of the host has a name inside. The network is a
// loopback with one port, the gateway's. A listener outside forwards it to the
// gateway's socket. The program has no privilege, cannot get one, and cannot type into
// the terminal.
//
// If the host lacks a feature, building fails and names it: there is no weaker jail.
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

// Options describe the program for which NewPlan plans a jail.
type Options struct {
	Dir    string   // where the program starts
	Home   string   // of the user; "": there is none
	Keep   string   // a directory that becomes its home; "": an empty one
	Path   string   // of the program
	Env    []string // of the program
	Show   []string // further paths to read
	Write  []string // paths to write, besides Dir
	Hide   []string // paths that are never visible
	Base   string   // address of the gateway that the program uses
	Socket string   // of the gateway
}

// A Plan describes a jail to build. Its names are absolute and have no links.
type Plan struct {
	Dir    string   `json:"dir"`
	Home   string   `json:"home,omitempty"` // an empty directory; "": only /tmp
	Keep   string   `json:"keep,omitempty"`
	Show   []string `json:"show"`
	Write  []string `json:"write,omitempty"`
	Hide   []string `json:"hide"`
	Port   int      `json:"port"`
	Socket string   `json:"socket"`
}

// systemDirs are the directories that every program sees. A link stays a link inside.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/gnu/store"}

// rebuilt are directories that a jail makes itself; it hides those of the host.
var rebuilt = []string{"/proc", "/sys", "/dev", "/run", "/boot"}

// shared are directories that belong to many programs or users. Sockets and files in
// them lead out of a jail.
var shared = []string{"/home", "/media", "/mnt", "/opt", "/srv", "/var", "/var/spool", "/lost+found"}

// Shared returns why a directory is not for one program to write to, because others
// keep their files there; else "". Directories below it are, but for those of services.
func Shared(dir string) string {
	if fi, err := os.Stat(dir); err == nil && fi.Mode()&os.ModeSticky != 0 && fi.Mode().Perm()&0o002 != 0 {
		return "everybody's: other programs keep their sockets and files there"
	}
	if slices.Contains(shared, dir) || filepath.Dir(dir) == "/var" || within(dir, "/var/spool") {
		return "the system's: its services keep their sockets and files there"
	}
	return ""
}

// NewPlan returns the plan of a jail. It refuses a plan that would show hidden paths,
// or let the program write to a directory of the system or to the whole home.
func NewPlan(w Options) (*Plan, error) {
	u, err := url.Parse(w.Base)
	if err != nil {
		return nil, err
	}
	p := &Plan{Socket: w.Socket}
	// The jail forwards one port of its own loopback, so any other address would lead nowhere.
	if p.Port, err = strconv.Atoi(u.Port()); err != nil || u.Hostname() != "127.0.0.1" || u.Scheme != "http" {
		return nil, fmt.Errorf("the gateway is at %s, and a program in a jail reaches only one at http://127.0.0.1:PORT", w.Base)
	}
	if w.Socket == "" {
		return nil, fmt.Errorf("the gateway at %s has no socket to forward to", w.Base)
	}
	if p.Dir, err = realPath(w.Dir); err != nil {
		return nil, err
	}
	if p.Home, err = realPath(w.Home); err != nil || w.Home == "" || p.systemOwned(p.Home) != "" {
		p.Home = "" // the home holds nothing to hide
	}
	for _, h := range w.Hide {
		if h, err = realPath(h); err != nil {
			continue // it does not exist
		}
		// Hiding wins over everything, and a program without its directory cannot start.
		if within(p.Dir, h) {
			return nil, fmt.Errorf("the directory %s is below %s, which no program may see", p.Dir, h)
		}
		p.Hide = append(p.Hide, h)
	}
	if err := p.checkDir(w.Write); err != nil {
		return nil, err
	}
	if err := p.addGiven(w); err != nil {
		return nil, err
	}
	p.addNeeded(w)
	if err := p.checkVisible(w.Path); err != nil {
		return nil, err
	}
	// Drop every path that is below another one.
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

// checkDir refuses a directory where a program may not write. A shared one is refused
// unless the user names it among those to write to.
func (p *Plan) checkDir(write []string) error {
	if why := p.tooBroad(p.Dir); why != "" {
		return fmt.Errorf("a program in a jail may write in the directory it is started in, and %s is %s: start it in one of its own (mkdir work && cd work), and name what it must read beside that with --show", p.Dir, why)
	}
	named := slices.ContainsFunc(write, func(name string) bool {
		at, err := realPath(name)
		return err == nil && within(p.Dir, at)
	})
	if why := Shared(p.Dir); why != "" && !named {
		return fmt.Errorf("a program in a jail may write in the directory it is started in, and %s is %s. Start it in one of its own (mkdir work && cd work), or say --write %s", p.Dir, why, p.Dir)
	}
	return nil
}

// systemOwned returns the owner of a name that belongs to the system; else "".
func (p *Plan) systemOwned(name string) string {
	for _, d := range slices.Concat(systemDirs, rebuilt) {
		if within(name, d) || name == "/" {
			return "the system's"
		}
	}
	if name == "/var/tmp" {
		return "a link to /tmp in a jail"
	}
	return ""
}

// tooBroad returns why a program may not write to a directory; "" if it may.
func (p *Plan) tooBroad(dir string) string {
	if p.Home != "" && within(p.Home, dir) || dir == "/" {
		return "too much"
	}
	return p.systemOwned(dir)
}

// addGiven adds the paths that the user named for the program to read and to write.
func (p *Plan) addGiven(w Options) (err error) {
	if w.Keep != "" {
		if p.Keep, err = p.resolveGiven(w.Keep); err != nil {
			return err
		}
		if fi, err := os.Stat(p.Keep); err != nil || !fi.IsDir() {
			return fmt.Errorf("%s cannot be its home: expected a directory", p.Keep)
		}
	}
	// A program may not write where others keep settings or programs, because they would trust what it wrote.
	for _, s := range slices.Concat([]string{p.Keep}, w.Write) {
		if s == "" {
			continue
		}
		if s, err = p.resolveGiven(s); err != nil {
			return err
		}
		why := p.tooBroad(s)
		if s == p.Keep && why == "" {
			why = Shared(s)
		}
		if why != "" {
			return fmt.Errorf("%s is not for a program in a jail to write in: it is %s", s, why)
		}
		if !within(s, p.Dir) {
			p.Write = append(p.Write, s)
		}
	}
	for _, s := range w.Show {
		if s, err = p.resolveGiven(s); err != nil {
			return err
		}
		// The host's own would lead out: /proc and /run show its processes and sockets.
		if slices.ContainsFunc(rebuilt, func(d string) bool { return within(s, d) }) || s == "/" {
			return fmt.Errorf("%s cannot be shown: a jail has its own", s)
		}
		if !slices.Contains(p.Write, s) {
			p.Show = append(p.Show, s)
		}
	}
	return nil
}

// resolveGiven resolves a name that the user gave. It refuses a link that leads out
// of a directory where programs write, because a program may have made it.
func (p *Plan) resolveGiven(name string) (string, error) {
	s, err := realPath(name)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(p.Hide, func(h string) bool { return within(s, h) }); i >= 0 {
		return "", fmt.Errorf("%s cannot be shown: it is below %s, which no program may see", s, p.Hide[i])
	}
	if d := p.escapesByLink(name, s); d != "" {
		return "", fmt.Errorf("%s leads to %s by a link in %s, where a program may write and could have made it: name %s itself if you mean that", name, s, d, s)
	}
	return s, nil
}

// escapesByLink looks for a link in name that leads out of a directory where programs
// write. The argument real is name without links. The result is that directory, or "".
func (p *Plan) escapesByLink(name, real string) string {
	at, err := filepath.Abs(name)
	for ; err == nil && at != "/"; at = filepath.Dir(at) {
		a, _ := realPath(at)
		for _, d := range slices.Concat([]string{p.Dir}, p.Write) {
			if within(a, d) && !within(real, d) {
				return d
			}
		}
	}
	return ""
}

// addNeeded shows the files that the program needs to start. These are its directory,
// the targets of links, its interpreter, and directories that the environment names.
func (p *Plan) addNeeded(w Options) {
	p.addProgram(w.Path, 0)
	for _, v := range w.Env {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "PATH":
			for _, dir := range filepath.SplitList(value) {
				p.addTree(dir)
			}
		case "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "GOROOT", "JAVA_HOME", "RUSTUP_HOME":
			p.addReadOnly(value)
		}
	}
}

// checkVisible returns an error if the program at path is not visible inside.
func (p *Plan) checkVisible(path string) error {
	at, err := realPath(path)
	if path == "" || err != nil {
		return nil // no program is to start
	}
	seen := slices.Concat(systemDirs, p.Show, p.Write, []string{p.Dir})
	if !slices.ContainsFunc(seen, func(d string) bool { return within(at, d) }) {
		return fmt.Errorf("the program is at %s, which a jail does not show: name it with --show, or the directory that it is part of", at)
	}
	return nil
}

// addProgram shows a program through all its links and interpreters. A name that is
// no program adds nothing, because an earlier program may have written the name.
func (p *Plan) addProgram(name string, deep int) {
	// Links and interpreters may form a loop.
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
	p.addTree(filepath.Dir(name))
	if to, err := os.Readlink(name); err == nil {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		if p.mayLeadTo(name, to) {
			p.addProgram(to, deep+1)
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
		// An interpreter may be a script or a link itself, and its arguments may name further programs.
		for _, word := range strings.Fields(string(rest)) {
			if filepath.IsAbs(word) && p.mayLeadTo(name, word) {
				p.addProgram(word, deep+1)
			}
		}
	}
}

// mayLeadTo reports whether a link or a first line may add a program. If an earlier
// program may have written it, it may lead only to a directory of programs.
func (p *Plan) mayLeadTo(from, to string) bool {
	written := func(name string) bool {
		dir, err := realPath(filepath.Dir(name))
		return err != nil || slices.ContainsFunc(append(p.Write, p.Dir), func(d string) bool { return within(dir, d) })
	}
	return !written(from) || written(to) || slices.Contains([]string{"bin", "sbin", "shims"}, filepath.Base(filepath.Dir(to)))
}

// addTree shows a directory of programs with the tree to which it belongs. Such trees
// are bin beside lib, the shims of a version manager, and packages of Node, which find
// each other by path. It shows no other parent, because that may hold secrets.
func (p *Plan) addTree(dir string) {
	p.addReadOnly(dir)
	const modules = "/node_modules"
	if i := strings.Index(dir+"/", modules+"/"); i >= 0 {
		p.addReadOnly(dir[:i+len(modules)])
	}
	up := filepath.Dir(dir)
	if _, err := os.Stat(filepath.Join(up, "lib")); err == nil || filepath.Base(dir) == "shims" {
		// ~/.local also holds the data of other programs.
		if filepath.Base(up) != ".local" {
			p.addReadOnly(up)
		}
	}
}

// addReadOnly shows a directory, unless it is too broad or already visible, or an
// earlier program may have put it in place of another.
func (p *Plan) addReadOnly(name string) {
	dir, err := realPath(name)
	if err != nil || dir == "/" || dir == os.TempDir() || Shared(dir) != "" || p.escapesByLink(name, dir) != "" {
		return
	}
	for _, more := range append([]string{p.Home, p.Dir}, p.Hide...) {
		if more != "" && within(more, dir) {
			return // dir contains a path that must stay hidden
		}
	}
	for _, d := range slices.Concat(systemDirs, rebuilt, p.Hide, p.Write, []string{p.Dir}) {
		if within(dir, d) {
			return
		}
	}
	p.Show = append(p.Show, dir)
}

// Environ returns env with HOME, PWD and temporary directories as they are inside.
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

func realPath(name string) (string, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(name)
}
