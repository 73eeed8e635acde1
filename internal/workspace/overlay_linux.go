package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// An overlaid view is an overlayfs mount with the workspace below and an own
// upper directory, which after unmounting is what was staged. With a quota the
// upper directory is a tmpfs of that size, so the kernel enforces it.
type overlaid struct {
	ground ground
	dir    string
	upper  string
	done   bool
}

func newOverlay(g ground) (view, error) {
	top := g.scratch
	o := &overlaid{ground: g, dir: filepath.Join(top, "view"), upper: filepath.Join(top, "upper", "u")}
	for _, d := range []string{o.dir, filepath.Dir(o.upper)} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	if bounded(g.quota) {
		if err := mountBounded(filepath.Dir(o.upper), 16<<10, 5, g.quota); err != nil {
			return nil, err
		}
	}
	work := filepath.Join(top, "upper", "w")
	for _, d := range []string{o.upper, work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, errors.Join(err, o.end())
		}
	}
	root, err := g.place.lstat(".")
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
	opts := "lowerdir=" + escape(g.place.name) + ",upperdir=" + escape(o.upper) + ",workdir=" + escape(work) +
		",redirect_dir=off,index=off,metacopy=off,xino=off"
	if err := unix.Mount("kern", o.dir, "overlay", unix.MS_NODEV, opts); err != nil {
		return nil, errors.Join(errorf(Unsupported, o.dir, "this host cannot mount an overlay here: %v", err), o.end())
	}
	return o, nil
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
	top, err := bareAll(context.Background(), p)
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
			if at == "." && x.Time == o.ground.base.Time && x.Mode == o.ground.base.Mode {
				continue
			}
		case Symlink:
			if x.Target, err = p.readlink(at); err != nil {
				return nil, err
			}
			x.Size = 0
		case File:
			unix.Lremovexattr(name, "trusted.overlay.origin")
			ch.src, ch.move = name, e.Group == 0 && !bounded(o.ground.quota)
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
	p, err := o.ground.place.sub(at)
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
	return unmount(o.ground.scratch)
}
