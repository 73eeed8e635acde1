package view

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/kern-run/kern/internal/workspace/fsys"

	"golang.org/x/sys/unix"
)

// An overlayView is an overlayfs mount with the workspace as lower directory. After
// unmounting, the upper directory holds what was staged. With a quota the upper
// directory is a tmpfs of that size, so the kernel enforces the quota.
type overlayView struct {
	ground Ground
	dir    string
	upper  string
	done   bool
}

// NewOverlay opens a view that is an overlay of the workspace.
func NewOverlay(g Ground) (View, error) {
	top := g.Scratch
	o := &overlayView{ground: g, dir: filepath.Join(top, "view"), upper: filepath.Join(top, "upper", "u")}
	for _, d := range []string{o.dir, filepath.Dir(o.upper)} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	if bounded(g.Quota) {
		// The extra room is for the directories that the overlay itself needs.
		if err := fsys.MountBounded(filepath.Dir(o.upper), 16<<10, 5, g.Quota); err != nil {
			return nil, err
		}
	}
	work := filepath.Join(top, "upper", "w")
	for _, d := range []string{o.upper, work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, errors.Join(err, o.End())
		}
	}
	// The upper directory shows as the top of the view, so it gets owner, mode and time of the workspace.
	root, err := g.Place.Lstat(".")
	if err != nil {
		return nil, errors.Join(err, o.End())
	}
	up, err := fsys.Open(filepath.Dir(o.upper))
	if err == nil {
		err = errors.Join(fsys.Chown(o.upper, root.Print), up.SetAttr("u", root.Entry), up.Close())
	}
	if err != nil {
		return nil, errors.Join(err, o.End())
	}
	opts := "lowerdir=" + fsys.EscapeMountOption(g.Place.Name) + ",upperdir=" + fsys.EscapeMountOption(o.upper) + ",workdir=" + fsys.EscapeMountOption(work) +
		// redirect_dir and metacopy would keep changes in attributes that Changes does not read.
		",redirect_dir=off,index=off,metacopy=off,xino=off"
	// The view need not survive a crash, because commits sync their slots. So mount
	// it as volatile. An older kernel does not know this option and syncs at the end.
	err = unix.Mount("kern", o.dir, "overlay", unix.MS_NODEV, opts+",volatile")
	if err == unix.EINVAL {
		err = unix.Mount("kern", o.dir, "overlay", unix.MS_NODEV, opts)
	}
	if err != nil {
		return nil, errors.Join(fsys.Errorf(fsys.Unsupported, o.dir, "this host cannot mount an overlay here: %v", err), o.End())
	}
	return o, nil
}

func (o *overlayView) Path() string { return o.dir }

func (o *overlayView) Changes() ([]Staged, error) {
	// A process with an open file could still write into the upper directory, so a busy mount is refused.
	if err := unix.Unmount(o.dir, unix.UMOUNT_NOFOLLOW); err != nil {
		return nil, fsys.Errorf(fsys.Busy, o.dir, "a process still uses the view: %v", err)
	}
	p, err := fsys.Open(o.upper)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	top, err := fsys.Metadata(context.Background(), p)
	if err != nil {
		return nil, err
	}
	// A file with more links than names here is shared with something outside of the view.
	links := map[uint64]uint32{}
	for _, e := range top.Walk(".") {
		links[e.Group]++
	}
	var out []Staged
	for at, e := range top.Walk(".") {
		name := filepath.Join(o.upper, filepath.FromSlash(at))
		x := *e
		x.Dir, x.Print, x.Ignored = nil, fsys.Print{}, false
		ch := Staged{Path: at, To: &x}
		switch e.Kind {
		case fsys.Other:
			// An overlay marks a removed name by a device 0:0.
			if isWhiteout(name) {
				ch.To = nil
			}
		case fsys.Dir:
			// An opaque directory was removed and made again: the old names in it are gone.
			if isOpaque(name) {
				out = append(out, o.hiddenNames(at, e)...)
			}
			if at == "." && x.Time == o.ground.Base.Time && x.Mode == o.ground.Base.Mode {
				continue
			}
		case fsys.Symlink:
			if x.Target, err = p.Readlink(at); err != nil {
				return nil, err
			}
			x.Size = 0
		case fsys.File:
			// The attribute belongs to this mount, and must not reach the workspace.
			unix.Lremovexattr(name, "trusted.overlay.origin")
			ch.Src, ch.Move = name, e.Group == 0 && !bounded(o.ground.Quota)
			if links[e.Group] != e.Print.Nlink {
				x.Group = 0
			}
		}
		out = append(out, ch)
	}
	return out, nil
}

// hiddenNames lists the names of the workspace that an opaque directory hides.
func (o *overlayView) hiddenNames(at string, e *fsys.Item) (out []Staged) {
	p, err := o.ground.Place.Sub(at)
	if err != nil {
		return nil // it is no directory; the check before publishing decides
	}
	defer p.Close()
	names, err := p.Names()
	if err != nil {
		return nil
	}
	for _, n := range names {
		if _, ok := e.Dir.Find(n); !ok {
			c := n
			if at != "." {
				c = at + "/" + n
			}
			out = append(out, Staged{Path: c})
		}
	}
	return out
}

func isWhiteout(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func isOpaque(name string) bool {
	var b [8]byte
	n, err := unix.Lgetxattr(name, "trusted.overlay.opaque", b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

func (o *overlayView) End() error {
	if o.done {
		return nil
	}
	o.done = true
	return fsys.Unmount(o.ground.Scratch)
}
