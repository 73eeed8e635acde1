package jail

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An order is what init is told to build. Descriptors travel beside it: stdin,
// stdout and stderr of the program, then the doors, then the workspace.
type order struct {
	Argv     []string
	Env      []string
	Shown    []string // host directories, read-only
	Filter   []byte   // seccomp program
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
	Bounds   bounds
}

// Bounds are the limits that hold inside the box.
type bounds struct {
	FileBytes int64
	Files     int
	Memory    int64         // only without a cgroup
	Processes int           // only without a cgroup
	CPU       time.Duration // only without a cgroup
}

// What a note from init is about.
const (
	poised  = "poised"  // about to start the program; waits for an answer
	started = "started" // the program runs; its socket comes along
	claimed = "claimed" // a warm box now has the bounds and workspace of its run
	failed  = "failed"  // nothing ran
	done    = "done"    // the program ended
)

// A note is what init tells.
type note struct {
	Kind   string
	Err    string
	Exit   int
	Signal string
	Full   bool          // the private files or bytes were all used
	Over   string        // the limit init ended the run for
	CPU    time.Duration // measured by init; exact only with a cgroup
	Peak   int64
}

// A claim gives a warm box to one run; a workspace may come along.
type claim struct {
	Go     bool // answer to poised; the rest is empty
	Lent   bool
	Dir    string
	Bounds bounds
}

const frameMax = 8 << 20

// A wire is one end of the socket between supervisor and init.
type wire struct {
	fd   int
	file *os.File // the supervisor's end waits without holding a thread; init's is plain
}

func newWire(fd int) (*wire, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return &wire{fd, os.NewFile(uintptr(fd), "control")}, nil
}

// try calls f until it would no longer block.
func (w *wire) try(write bool, f func() error) error {
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

// send writes one frame, with descriptors on its first byte.
func (w *wire) send(v any, files ...int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > frameMax {
		return fmt.Errorf("want at most %d bytes of arguments and environment, got %d", frameMax, len(body))
	}
	b := append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
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

// receive reads one frame and the descriptors beside it.
func (w *wire) receive(v any) ([]int, error) {
	var head [4]byte
	room := make([]byte, unix.CmsgSpace(16*4))
	files, err := w.fill(head[:], room)
	if err != nil {
		return files, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > frameMax {
		return files, fmt.Errorf("want a frame of at most %d bytes, got %d", frameMax, n)
	}
	body := make([]byte, n)
	if _, err := w.fill(body, nil); err != nil {
		return files, err
	}
	return files, json.Unmarshal(body, v)
}

func (w *wire) fill(b, room []byte) (files []int, err error) {
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
