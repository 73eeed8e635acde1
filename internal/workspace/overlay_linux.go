package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// An overlaid view is an overlayfs mount with the workspace below and an own
// upper directory, which after unmounting is what was staged. With a quota the
// upper directory is a tmpfs of that size, so the kernel enforces it.
type overlaid struct {
	tx    *Tx
	dir   string
	upper string
	done  bool
}

func newOverlay(tx *Tx) (view, error) {
	top := tx.dir.name
	o := &overlaid{tx: tx, dir: filepath.Join(top, "view"), upper: filepath.Join(top, "upper", "u")}
	for _, d := range []string{o.dir, filepath.Dir(o.upper)} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	if bounded(tx.opt) {
		if err := mountBounded(filepath.Dir(o.upper), 16<<10, 5, tx.opt); err != nil {
			return nil, err
		}
	}
	work := filepath.Join(top, "upper", "w")
	for _, d := range []string{o.upper, work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, errors.Join(err, o.end())
		}
	}
	root, err := tx.w.place.lstat(".")
	if err != nil {
		return nil, errors.Join(err, o.end())
	}
	up, err := openPlace(filepath.Dir(o.upper))
	if err == nil {
		err = errors.Join(own(o.upper, root.fp), up.attr("u", root.Entry), up.close())
	}
	if err != nil {
		return nil, errors.Join(err, o.end())
	}
	opts := "lowerdir=" + escape(tx.w.dir) + ",upperdir=" + escape(o.upper) + ",workdir=" + escape(work) +
		",redirect_dir=off,index=off,metacopy=off,xino=off"
	if err := unix.Mount("kern", o.dir, "overlay", unix.MS_NODEV, opts); err != nil {
		return nil, errors.Join(errorf(Unsupported, o.dir, "this host cannot mount an overlay here: %v", err), o.end())
	}
	return o, nil
}

// escape keeps a path whole in mount options.
func escape(p string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace(p)
}

// mountBounded puts a tmpfs at dir that holds what is there and the quota.
func mountBounded(dir string, bytes int64, files int, opt Options) error {
	size, inodes := int64(0), 0 // 0: no bound
	if opt.Bytes > 0 {
		size = (bytes+4095)&^4095 + opt.Bytes&^4095
	}
	if opt.Files > 0 {
		inodes = files + opt.Files
	}
	data := fmt.Sprintf("mode=0700,size=%d,nr_inodes=%d", size, inodes)
	if err := unix.Mount("kern", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, data); err != nil {
		return errorf(Unsupported, dir, "a quota on this kind of view needs a file system of its own, which this host does not let us mount: %v; use a layer, or no quota", err)
	}
	return nil
}

// unmount takes down every mount below dir.
func unmount(dir string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var at []string
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) > 4 {
			if p := unescapeMount(f[4]); inside(p, dir) {
				at = append(at, p)
			}
		}
	}
	var errs []error
	for _, p := range slices.Backward(at) {
		errs = append(errs, unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	return errors.Join(errs...)
}

func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func (o *overlaid) path() string { return o.dir }

func (o *overlaid) changes() ([]change, error) {
	if err := unix.Unmount(o.dir, unix.UMOUNT_NOFOLLOW); err != nil {
		return nil, errorf(Busy, o.dir, "a process still uses the view: %v", err)
	}
	p, err := openPlace(o.upper)
	if err != nil {
		return nil, err
	}
	defer p.close()
	s := o.tx.w.scanner(context.Background())
	s.bare = true
	top, err := s.tree(p, entry{})
	if err != nil {
		return nil, err
	}
	links := map[uint64]uint32{}
	for _, e := range top.walk(".") {
		links[e.Group]++
	}
	var out []change
	for at, e := range top.walk(".") {
		name := filepath.Join(o.upper, filepath.FromSlash(at))
		x := *e
		x.dir, x.fp, x.ignored = nil, print{}, false
		ch := change{path: at, e: &x}
		switch e.Kind {
		case Other:
			if whiteout(name) {
				ch.e = nil
			}
		case Dir:
			if opaque(name) {
				out = append(out, o.hidden(at, e)...)
			}
			if at == "." && x.Time == o.tx.base.Time && x.Mode == o.tx.base.Mode {
				continue
			}
		case Symlink:
			if x.Target, err = p.readlink(at); err != nil {
				return nil, err
			}
			x.Size = 0
		case File:
			unix.Lremovexattr(name, "trusted.overlay.origin")
			ch.src, ch.move = name, e.Group == 0 && !bounded(o.tx.opt)
			if links[e.Group] != e.fp.nlink {
				x.Group = 0
			}
		}
		out = append(out, ch)
	}
	return out, nil
}

// hidden lists what an opaque directory hides of the workspace.
func (o *overlaid) hidden(at string, e *entry) (out []change) {
	p, err := o.tx.w.place.sub(at)
	if err != nil {
		return nil // it was no directory, or is none now: the check will tell
	}
	defer p.close()
	names, err := p.names()
	if err != nil {
		return nil
	}
	for _, n := range names {
		if _, ok := e.dir.find(n); !ok {
			c := n
			if at != "." {
				c = at + "/" + n
			}
			out = append(out, change{path: c})
		}
	}
	return out
}

func whiteout(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func opaque(name string) bool {
	var b [8]byte
	n, err := unix.Lgetxattr(name, "trusted.overlay.opaque", b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

func (o *overlaid) end() error {
	if o.done {
		return nil
	}
	o.done = true
	return unmount(o.tx.dir.name)
}
