package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An Order is what init is told to build. Descriptors travel beside it: stdin,
// stdout and stderr of the program, then the doors, then the workspace.
type Order struct {
	Argv     []string
	Env      []string
	Shown    []string // host directories, read-only
	Filter   string   // seccomp program
	Landlock int      // ABI to use; 0: none
	Root     bool     // the box maps a root and a user, not one user alone
	Lent     bool     // the workspace comes as a mount descriptor
	Dir      string   // the workspace's path, where init may open it itself
	Links    int      // sockets to the supervisor the program gets, from descriptor 3 on
	Warm     bool     // the program waits for a claim; Landlock is left to it
	Doors    int      // cgroup files through which a thread moves itself
	Gate     bool     // ask before starting the program: the supervisor moves init
	Group    string   // name of the cgroup the program must be born in
	Groups   int      // in how many hierarchies
	Probe    bool     // show this program in the box, and a writable place Landlock has no rule for
	Bounds   Bounds
}

// Bounds are the limits that hold inside the box.
type Bounds struct {
	FileBytes int64
	Files     int
	Data      int64         // of one process, so that it is told and not killed
	Memory    int64         // only without a cgroup
	Processes int           // only without a cgroup
	CPU       time.Duration // only without a cgroup
}

// What a note from init is about.
const (
	Poised  = "poised"  // about to start the program; waits for an answer
	Started = "started" // the program runs; its socket comes along
	Claimed = "claimed" // a warm box now has the bounds and workspace of its run
	Failed  = "failed"  // nothing ran
	Done    = "done"    // the program ended
)

// A Note is what init tells.
type Note struct {
	Kind   string
	Err    string
	Barred bool // failed: the kernel gave init no rights in its namespaces
	Exit   int
	Signal string
	Full   bool          // the private files or bytes were all used
	Over   string        // the limit init ended the run for
	CPU    time.Duration // measured by init; exact only with a cgroup
	Peak   int64
}

// A Claim gives a warm box to one run; a workspace may come along.
type Claim struct {
	Go     bool // answer to poised; the rest is empty
	Lent   bool
	Dir    string
	Bounds Bounds
}

// A Packed value says the order in which its parts go over the wire. Both ends
// are the same program, so there is nothing to negotiate; a general format
// would cost a new process more than all else it does.
type Packed interface{ pack(p *packer) }

func (o *Order) pack(p *packer) {
	p.strings(&o.Argv)
	p.strings(&o.Env)
	p.strings(&o.Shown)
	p.string(&o.Filter)
	number(p, &o.Landlock)
	p.bool(&o.Root)
	p.bool(&o.Lent)
	p.string(&o.Dir)
	number(p, &o.Links)
	p.bool(&o.Warm)
	number(p, &o.Doors)
	p.bool(&o.Gate)
	p.string(&o.Group)
	number(p, &o.Groups)
	p.bool(&o.Probe)
	o.Bounds.pack(p)
}

func (b *Bounds) pack(p *packer) {
	number(p, &b.FileBytes)
	number(p, &b.Files)
	number(p, &b.Data)
	number(p, &b.Memory)
	number(p, &b.Processes)
	number(p, &b.CPU)
}

func (n *Note) pack(p *packer) {
	p.string(&n.Kind)
	p.string(&n.Err)
	p.bool(&n.Barred)
	number(p, &n.Exit)
	p.string(&n.Signal)
	p.bool(&n.Full)
	p.string(&n.Over)
	number(p, &n.CPU)
	number(p, &n.Peak)
}

func (c *Claim) pack(p *packer) {
	p.bool(&c.Go)
	p.bool(&c.Lent)
	p.string(&c.Dir)
	c.Bounds.pack(p)
}

// A packer writes values to b, or reads them from it.
type packer struct {
	b       []byte
	reading bool
	short   bool // b ended too early
}

func number[T int | int64 | time.Duration](p *packer, v *T) {
	if !p.reading {
		p.b = binary.LittleEndian.AppendUint64(p.b, uint64(*v))
		return
	}
	if p.short = p.short || len(p.b) < 8; !p.short {
		*v = T(binary.LittleEndian.Uint64(p.b))
		p.b = p.b[8:]
	}
}

func (p *packer) bool(v *bool) {
	n := 0
	if *v {
		n = 1
	}
	number(p, &n)
	*v = n == 1
}

func (p *packer) string(v *string) {
	n := len(*v)
	number(p, &n)
	if !p.reading {
		p.b = append(p.b, *v...)
		return
	}
	if p.short = p.short || n < 0 || n > len(p.b); !p.short {
		*v, p.b = string(p.b[:n]), p.b[n:]
	}
}

func (p *packer) strings(v *[]string) {
	n := len(*v)
	number(p, &n)
	if p.reading {
		if p.short = p.short || n < 0 || n > len(p.b); p.short {
			return
		}
		*v = make([]string, n)
	}
	for i := range *v {
		p.string(&(*v)[i])
	}
}

// Max is how large a frame may be.
const Max = 8 << 20

// A Conn is one end of the socket between supervisor and init.
type Conn struct {
	fd   int
	file *os.File // the supervisor's end waits without holding a thread; init's is plain
}

// New returns the supervisor's end. It takes fd.
func New(fd int) (*Conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return &Conn{fd, os.NewFile(uintptr(fd), "control")}, nil
}

// Plain returns init's end.
func Plain(fd int) *Conn { return &Conn{fd: fd} }

// Close closes the supervisor's end.
func (w *Conn) Close() error { return w.file.Close() }

// try calls f until it would no longer block.
func (w *Conn) try(write bool, f func() error) error {
	if w.file == nil {
		return f()
	}
	raw, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	wait := raw.Read
	if write {
		wait = raw.Write
	}
	if e := wait(func(uintptr) bool {
		err = f()
		return err != unix.EAGAIN
	}); e != nil {
		return e
	}
	return err
}

// Send writes one frame, with descriptors on its first byte.
func (w *Conn) Send(v Packed, files ...int) error {
	p := packer{b: make([]byte, 4, 8<<10)}
	v.pack(&p)
	b, n := p.b, len(p.b)-4
	if n > Max {
		return fmt.Errorf("want at most %d bytes of arguments and environment, got %d", Max, n)
	}
	binary.LittleEndian.PutUint32(b, uint32(n))
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	for len(b) > 0 {
		var n int
		err := w.try(true, func() (err error) {
			n, err = unix.SendmsgN(w.fd, b, rights, nil, unix.MSG_NOSIGNAL)
			return err
		})
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b, rights = b[n:], nil
	}
	return nil
}

// Receive reads one frame and the descriptors beside it.
func (w *Conn) Receive(v Packed) ([]int, error) {
	var head [4]byte
	room := make([]byte, unix.CmsgSpace(16*4))
	files, err := w.fill(head[:], room)
	if err != nil {
		return files, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > Max {
		return files, fmt.Errorf("want a frame of at most %d bytes, got %d", Max, n)
	}
	body := make([]byte, n)
	if _, err := w.fill(body, nil); err != nil {
		return files, err
	}
	p := packer{b: body, reading: true}
	if v.pack(&p); p.short || len(p.b) > 0 {
		return files, errors.New("a frame that is not what was expected")
	}
	return files, nil
}

func (w *Conn) fill(b, room []byte) (files []int, err error) {
	for len(b) > 0 {
		var n, oobn int
		err := w.try(false, func() (err error) {
			n, oobn, _, _, err = unix.Recvmsg(w.fd, b, room, unix.MSG_CMSG_CLOEXEC)
			return err
		})
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return files, err
		}
		if oobn > 0 {
			got, err := rights(room[:oobn])
			if err != nil {
				return files, err
			}
			files = append(files, got...)
		}
		if n == 0 {
			return files, io.EOF
		}
		b = b[n:]
	}
	return files, nil
}

func rights(control []byte) (files []int, err error) {
	ms, err := unix.ParseSocketControlMessage(control)
	for i := 0; err == nil && i < len(ms); i++ {
		var got []int
		got, err = unix.ParseUnixRights(&ms[i])
		files = append(files, got...)
	}
	return files, err
}
