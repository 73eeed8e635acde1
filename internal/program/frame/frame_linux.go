package frame

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A Packed value writes or reads its parts in a fixed order. Both ends are the same
// program, so there is nothing to negotiate. A general format would cost a new process
// more than everything else it does.
type Packed interface{ Pack(p *Packer) }

// A Packer writes values to b, or reads them from it.
type Packer struct {
	b       []byte
	reading bool
	short   bool // b ended too early
	err     error
}

// Number packs a number.
func Number[T int | int64 | time.Duration](p *Packer, v *T) {
	if !p.reading {
		p.b = binary.LittleEndian.AppendUint64(p.b, uint64(*v))
		return
	}
	if p.short = p.short || len(p.b) < 8; !p.short {
		*v = T(binary.LittleEndian.Uint64(p.b))
		p.b = p.b[8:]
	}
}

// JSON packs a value that is a pointer, as JSON.
func (p *Packer) JSON(v any) {
	var text string
	if !p.reading {
		b, err := json.Marshal(v)
		p.err = errors.Join(p.err, err)
		text = string(b)
	}
	if p.String(&text); p.reading && !p.short {
		p.err = errors.Join(p.err, json.Unmarshal([]byte(text), v))
	}
}

// A JSON frame is one value, as JSON. To receive it Value is a pointer.
type JSON struct{ Value any }

// Pack packs the value.
func (j JSON) Pack(p *Packer) { p.JSON(j.Value) }

// Bool packs a truth value.
func (p *Packer) Bool(v *bool) {
	n := 0
	if *v {
		n = 1
	}
	Number(p, &n)
	*v = n == 1
}

// String packs bytes.
func (p *Packer) String(v *string) {
	n := len(*v)
	Number(p, &n)
	if !p.reading {
		p.b = append(p.b, *v...)
		return
	}
	if p.short = p.short || n < 0 || n > len(p.b); !p.short {
		*v, p.b = string(p.b[:n]), p.b[n:]
	}
}

// Strings packs a list.
func (p *Packer) Strings(v *[]string) {
	n := len(*v)
	Number(p, &n)
	if p.reading {
		// Each string takes bytes of its own, so a larger count is damage and must not allocate memory.
		if p.short = p.short || n < 0 || n > len(p.b); p.short {
			return
		}
		*v = make([]string, n)
	}
	for i := range *v {
		p.String(&(*v)[i])
	}
}

// Max is the most bytes of a frame.
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
	// Init's end blocks: its threads have nothing else to do.
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
	p := Packer{b: make([]byte, 4, 8<<10)}
	if v.Pack(&p); p.err != nil {
		return p.err
	}
	b, n := p.b, len(p.b)-4
	if n > Max {
		return fmt.Errorf("%d bytes of arguments and environment, expected at most %d: %w", n, Max, unix.E2BIG)
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
		// The descriptors travel with the first byte. Sent again, they would arrive twice.
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
	// The other end runs beside untrusted code, so its length must not decide how much memory is taken.
	if n > Max {
		return files, fmt.Errorf("want a frame of at most %d bytes, got %d", Max, n)
	}
	body := make([]byte, n)
	if _, err := w.fill(body, nil); err != nil {
		return files, err
	}
	p := Packer{b: body, reading: true}
	if v.Pack(&p); p.short || len(p.b) > 0 {
		return files, errors.New("a frame that is not what was expected")
	}
	if p.err != nil {
		return files, p.err
	}
	return files, nil
}

func (w *Conn) fill(b, room []byte) (files []int, err error) {
	for len(b) > 0 {
		var n, oobn int
		err := w.try(false, func() (err error) {
			// Close-on-exec is set in the same step, so that no program inherits the descriptors.
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
