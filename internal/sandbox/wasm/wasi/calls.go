package wasi

import (
	"encoding/binary"
	"io"
	"io/fs"
	"time"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

// Module is the name under which an instance imports these functions.
const Module = "wasi_snapshot_preview1"

// A Call is one function: its name, its parameters (i for 32 bits, I for 64), and its
// implementation, which returns an Errno.
type Call struct {
	Name   string
	Params string
	Do     func(s *System, m Memory, p []uint64) Errno
}

// Calls are all functions an instance may import.
var Calls = []Call{
	{"args_get", "ii", nothing},
	{"args_sizes_get", "ii", noStrings},
	{"environ_get", "ii", nothing},
	{"environ_sizes_get", "ii", noStrings},
	{"clock_res_get", "ii", clockRes},
	{"clock_time_get", "iIi", clockTime},
	{"fd_advise", "iIIi", fdKnown},
	{"fd_close", "i", fdClose},
	{"fd_datasync", "i", fdKnown},
	{"fd_fdstat_get", "ii", fdStat},
	{"fd_fdstat_set_flags", "ii", fdSetFlags},
	{"fd_filestat_get", "ii", fdFilestat},
	{"fd_filestat_set_size", "iI", fdSetSize},
	{"fd_filestat_set_times", "iIIi", fdSetTimes},
	{"fd_pread", "iiiIi", fdPread},
	{"fd_prestat_get", "ii", fdPrestat},
	{"fd_prestat_dir_name", "iii", fdPrestatName},
	{"fd_pwrite", "iiiIi", fdPwrite},
	{"fd_read", "iiii", fdRead},
	{"fd_readdir", "iiiIi", fdReaddir},
	{"fd_seek", "iIii", fdSeek},
	{"fd_sync", "i", fdKnown},
	{"fd_tell", "ii", fdTell},
	{"fd_write", "iiii", fdWrite},
	{"path_create_directory", "iii", pathMkdir},
	{"path_filestat_get", "iiiii", pathStat},
	{"path_filestat_set_times", "iiiiIIi", pathSetTimes},
	{"path_link", "iiiiiii", refused},
	{"path_open", "iiiiiIIii", pathOpen},
	{"path_readlink", "iiiiii", pathReadlink},
	{"path_remove_directory", "iii", pathRmdir},
	{"path_rename", "iiiiii", pathRename},
	{"path_symlink", "iiiii", refused},
	{"path_unlink_file", "iii", pathUnlink},
	{"poll_oneoff", "iiii", poll},
	{"proc_exit", "i", exit},
	{"random_get", "ii", random},
	{"sched_yield", "", nothing},
	{"sock_accept", "iii", notSocket},
	{"sock_recv", "iiiiii", notSocket},
	{"sock_send", "iiiii", notSocket},
	{"sock_shutdown", "ii", notSocket},
}

// Memory is the memory of the code. An address outside of it is eFault.
type Memory struct{ api.Memory }

func (m Memory) put32(at uint64, v uint32) Errno {
	if !m.WriteUint32Le(uint32(at), v) {
		return eFault
	}
	return ok
}

func (m Memory) put64(at uint64, v uint64) Errno {
	if !m.WriteUint64Le(uint32(at), v) {
		return eFault
	}
	return ok
}

func nothing(*System, Memory, []uint64) Errno   { return ok }
func refused(*System, Memory, []uint64) Errno   { return ePerm }
func notSocket(*System, Memory, []uint64) Errno { return eNotSock }

func noStrings(_ *System, m Memory, p []uint64) Errno {
	return max(m.put32(p[0], 0), m.put32(p[1], 0))
}

func exit(_ *System, _ Memory, p []uint64) Errno { panic(Exit{uint32(p[0])}) }

// random fills in parts, so that a large request ends with its run.
func random(s *System, m Memory, p []uint64) Errno {
	b, in := m.Read(uint32(p[0]), uint32(p[1]))
	if !in {
		return eFault
	}
	for len(b) > 0 {
		n := min(len(b), maxMove)
		if _, err := io.ReadFull(s.Random, b[:n]); err != nil {
			return eIO
		}
		b = b[n:]
		select {
		case <-s.Done:
			return eIntr
		default:
		}
	}
	return ok
}

// ---- clocks ----

func (s *System) clock(id uint64) (uint64, Errno) {
	switch uint32(id) {
	case 0:
		return uint64(s.Wall().UnixNano()), ok
	case 1:
		return uint64(s.Mono()), ok
	case 2, 3:
		return uint64(s.CPU()), ok
	}
	return 0, eInval
}

func clockRes(s *System, m Memory, p []uint64) Errno {
	if _, e := s.clock(p[0]); e != ok {
		return e
	}
	return m.put64(p[1], 1)
}

func clockTime(s *System, m Memory, p []uint64) Errno {
	t, e := s.clock(p[0])
	if e != ok {
		return e
	}
	return m.put64(p[2], t)
}

// poll waits for the earliest clock. Files and streams are always ready.
func poll(s *System, m Memory, p []uint64) Errno {
	const subscription, event, most = 48, 32, 1024
	n := uint32(p[2])
	if n == 0 || n > most {
		return eInval
	}
	in, fits := m.Read(uint32(p[0]), n*subscription)
	out, room := m.Read(uint32(p[1]), n*event)
	if !fits || !room {
		return eFault
	}
	wait, ready := time.Duration(-1), false
	for i := range n {
		sub := in[i*subscription:]
		// Not a clock: files and streams are ready at once.
		if sub[8] != 0 {
			ready = true
			continue
		}
		d, e := s.until(sub)
		if e != ok {
			return e
		}
		if wait < 0 || d < wait {
			wait = d
		}
	}
	if !ready {
		s.sleep(wait)
	}
	count := uint32(0)
	for i := range n {
		sub := in[i*subscription:]
		if sub[8] == 0 {
			// A relative time still shows its whole length after the sleep, so it is compared with the wait.
			if d, _ := s.until(sub); ready && d > 0 || d > wait {
				continue
			}
		}
		ev := out[count*event:][:event]
		user, kind := binary.LittleEndian.Uint64(sub), sub[8]
		clear(ev)
		binary.LittleEndian.PutUint64(ev, user)
		ev[10] = kind
		count++
	}
	return m.put32(p[3], count)
}

// until says how long a clock subscription still waits.
func (s *System) until(sub []byte) (time.Duration, Errno) {
	now, e := s.clock(uint64(binary.LittleEndian.Uint32(sub[16:])))
	if e != ok {
		return 0, e
	}
	at := binary.LittleEndian.Uint64(sub[24:])
	if binary.LittleEndian.Uint16(sub[40:])&1 != 0 { // an absolute time
		if at <= now {
			return 0, ok
		}
		at -= now
	}
	return time.Duration(min(at, 1<<62)), ok
}

// ---- descriptors ----

// The rights of a descriptor, as wasi-libc reads them.
const (
	rightRead  = 1 << 1
	rightSeek  = 1 << 2
	rightTell  = 1 << 5
	rightWrite = 1 << 6
	rightAll   = 1<<30 - 1
)

func fdKnown(s *System, _ Memory, p []uint64) Errno {
	_, e := s.file(uint32(p[0]))
	return e
}

func fdClose(s *System, _ Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	s.files[uint32(p[0])] = nil
	return f.close(&s.Tree)
}

func filetype(m fs.FileMode) byte {
	switch {
	case m.IsDir():
		return 3
	case m&fs.ModeSymlink != 0:
		return 7
	case m&fs.ModeCharDevice != 0:
		return 2
	case m&fs.ModeDevice != 0:
		return 1
	case m.IsRegular():
		return 4
	}
	return 0
}

func fdStat(s *System, m Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	var b [24]byte
	rights := uint64(rightAll)
	if f.stream >= 0 {
		// A stream has no position.
		rights &^= rightSeek | rightTell
	} else {
		b[0] = filetype(f.st.Mode)
	}
	if !f.read {
		rights &^= rightRead
	}
	if !f.write && !f.isDir() {
		rights &^= rightWrite
	}
	if f.append {
		b[2] = 1
	}
	binary.LittleEndian.PutUint64(b[8:], rights)
	binary.LittleEndian.PutUint64(b[16:], rightAll)
	if !m.Write(uint32(p[1]), b[:]) {
		return eFault
	}
	return ok
}

// fdSetFlags accepts only flags that are already set.
func fdSetFlags(s *System, _ Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	if f.stream < 0 && (p[1]&1 != 0) != f.append {
		return eNotSup
	}
	return ok
}

func putStat(m Memory, at uint64, st sys.Stat_t) Errno {
	var b [64]byte
	le := binary.LittleEndian
	le.PutUint64(b[0:], st.Dev)
	le.PutUint64(b[8:], st.Ino)
	b[16] = filetype(st.Mode)
	le.PutUint64(b[24:], st.Nlink)
	le.PutUint64(b[32:], uint64(st.Size))
	le.PutUint64(b[40:], uint64(st.Atim))
	le.PutUint64(b[48:], uint64(st.Mtim))
	le.PutUint64(b[56:], uint64(st.Ctim))
	if !m.Write(uint32(at), b[:]) {
		return eFault
	}
	return ok
}

func fdFilestat(s *System, m Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	if f.stream >= 0 {
		return putStat(m, p[1], sys.Stat_t{Mode: fs.ModeNamedPipe, Nlink: 1})
	}
	st, e := f.stat()
	if e != ok {
		return e
	}
	return putStat(m, p[1], st)
}

func fdSetSize(s *System, _ Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	switch {
	case e != ok:
		return e
	case f.stream >= 0 || !f.write || int64(p[1]) < 0:
		return eInval
	}
	return f.resize(&s.Tree, int64(p[1]))
}

func fdSetTimes(s *System, _ Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	if f.stream >= 0 {
		return eInval
	}
	return s.setTimes(f.path, p[1], p[2], p[3])
}

func (s *System) setTimes(p string, access, modified, flags uint64) Errno {
	st, e := s.Tree.stat(p, true)
	if e != ok {
		return e
	}
	// A time without a flag stays, so the old one is written again.
	pick := func(given uint64, old int64, set, now uint64) time.Time {
		switch {
		case flags&now != 0:
			return s.Wall()
		case flags&set != 0:
			return time.Unix(0, int64(given))
		}
		return time.Unix(0, old)
	}
	return s.Tree.setTimes(p, pick(access, st.Atim, 1, 2), pick(modified, st.Mtim, 4, 8))
}

func fdPrestat(_ *System, m Memory, p []uint64) Errno {
	if uint32(p[0]) != rootFD {
		return eBadf
	}
	return max(m.put32(p[1], 0), m.put32(p[1]+4, 1))
}

func fdPrestatName(_ *System, m Memory, p []uint64) Errno {
	switch {
	case uint32(p[0]) != rootFD:
		return eBadf
	case uint32(p[2]) < 1:
		return eNameToLong
	case !m.WriteByte(uint32(p[1]), '/'):
		return eFault
	}
	return ok
}

// transfer reads or writes the list of buffers of the code, and stops at the first
// short one. One call transfers at most maxMove bytes, so that it ends soon.
func transfer(m Memory, p []uint64, result uint64, f func(b []byte) (int, Errno)) Errno {
	if uint32(p[2]) > maxBuffers {
		return eInval
	}
	total := uint32(0)
	for i := range uint32(p[2]) {
		at, in1 := m.ReadUint32Le(uint32(p[1]) + i*8)
		n, in2 := m.ReadUint32Le(uint32(p[1]) + i*8 + 4)
		// The code chose n. A bounded move ends soon, so the run can be stopped between two calls.
		want := min(n, maxMove-total)
		b, in3 := m.Read(at, want)
		if !in1 || !in2 || !in3 {
			return eFault
		}
		got, e := f(b)
		if e != ok {
			// An error after some bytes comes with the next call, as POSIX has it.
			if total > 0 {
				break
			}
			return e
		}
		total += uint32(got)
		// A short read or write ends the call, because the rest may block.
		if uint32(got) < n {
			break
		}
	}
	return m.put32(result, total)
}

func fdRead(s *System, m Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	return transfer(m, p, p[3], func(b []byte) (int, Errno) {
		if f.stream == 0 {
			return s.readInput(b)
		}
		n, e := f.readAt(b, f.pos)
		f.pos += int64(n)
		return n, e
	})
}

func fdPread(s *System, m Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	if f.stream >= 0 {
		return eSpipe
	}
	off := int64(p[3])
	return transfer(m, p, p[4], func(b []byte) (int, Errno) {
		n, e := f.readAt(b, off)
		off += int64(n)
		return n, e
	})
}

func fdWrite(s *System, m Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	return transfer(m, p, p[3], func(b []byte) (int, Errno) {
		switch {
		case f.stream == 0:
			return 0, eBadf
		case f.stream > 0:
			s.Output(f.stream, b)
			return len(b), ok
		}
		n, e := f.writeAt(&s.Tree, b, f.pos)
		if f.append && f.node != nil {
			f.pos = f.node.size
		} else {
			f.pos += int64(n)
		}
		return n, e
	})
}

func fdPwrite(s *System, m Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	if f.stream >= 0 {
		return eSpipe
	}
	off := int64(p[3])
	if off < 0 {
		return eInval
	}
	return transfer(m, p, p[4], func(b []byte) (int, Errno) {
		n, e := f.writeAt(&s.Tree, b, off)
		off += int64(n)
		return n, e
	})
}

func fdSeek(s *System, m Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	if f.stream >= 0 {
		return eSpipe
	}
	to := int64(p[1])
	switch uint32(p[2]) {
	case 0:
	case 1:
		to += f.pos
	case 2:
		st, e := f.stat()
		if e != ok {
			return e
		}
		to += st.Size
	default:
		return eInval
	}
	// An overflow of the sum ends here, too.
	if to < 0 {
		return eInval
	}
	f.pos = to
	return m.put64(p[3], uint64(to))
}

func fdTell(s *System, m Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	if f.stream >= 0 {
		return eSpipe
	}
	return m.put64(p[1], uint64(f.pos))
}

// fdReaddir fills a buffer with entries, starting at a cookie. The last entry may be
// cut: a full buffer means that there are more.
func fdReaddir(s *System, m Memory, p []uint64) Errno {
	f, e := s.file(uint32(p[0]))
	if e != ok {
		return e
	}
	if !f.isDir() {
		return eNotDir
	}
	out, in := m.Read(uint32(p[1]), uint32(p[2]))
	if !in {
		return eFault
	}
	used := 0
	for n := int(p[3]); used < len(out); n++ {
		// The cookie comes from the code, and a large one is negative as an int.
		if n < 0 {
			return eInval
		}
		d, e := f.entry(&s.Tree, n)
		if e != ok {
			return e
		}
		if d.name == "" {
			break
		}
		var b [24]byte
		binary.LittleEndian.PutUint64(b[0:], uint64(n)+1)
		binary.LittleEndian.PutUint64(b[8:], d.ino)
		binary.LittleEndian.PutUint32(b[16:], uint32(len(d.name)))
		b[20] = filetype(d.mode)
		used += copy(out[used:], b[:])
		used += copy(out[used:], d.name)
	}
	return m.put32(p[4], uint32(used))
}

// ---- paths ----

// path reads a path argument and makes it absolute.
func (s *System) path(m Memory, fd, at, size uint64) (string, Errno) {
	f, e := s.file(uint32(fd))
	if e != ok {
		return "", e
	}
	if !f.isDir() {
		return "", eNotDir
	}
	if uint32(size) > 4096 {
		return "", eNameToLong
	}
	b, in := m.Read(uint32(at), uint32(size))
	switch {
	case !in:
		return "", eFault
	case len(b) == 0:
		return "", eNoEnt
	case !utf8.Valid(b):
		return "", eInval
	}
	return clean(f.path, string(b)), ok
}

func pathMkdir(s *System, m Memory, p []uint64) Errno {
	name, e := s.path(m, p[0], p[1], p[2])
	if e != ok {
		return e
	}
	return s.Tree.mkdir(name)
}

func pathStat(s *System, m Memory, p []uint64) Errno {
	name, e := s.path(m, p[0], p[2], p[3])
	if e != ok {
		return e
	}
	st, e := s.Tree.stat(name, p[1]&1 != 0)
	if e != ok {
		return e
	}
	return putStat(m, p[4], st)
}

func pathSetTimes(s *System, m Memory, p []uint64) Errno {
	name, e := s.path(m, p[0], p[2], p[3])
	if e != ok {
		return e
	}
	return s.setTimes(name, p[4], p[5], p[6])
}

func pathOpen(s *System, m Memory, p []uint64) Errno {
	name, e := s.path(m, p[0], p[2], p[3])
	if e != ok {
		return e
	}
	o := openFlags{
		follow: p[1]&1 != 0,
		create: p[4]&1 != 0, directory: p[4]&2 != 0, exclusive: p[4]&4 != 0, truncate: p[4]&8 != 0,
		read: p[5]&rightRead != 0, write: p[5]&rightWrite != 0,
		append: p[7]&1 != 0,
	}
	if o.directory {
		o.write = false // the rights of a directory are for what is below it
	}
	f, e := s.Tree.open(name, o)
	if e != ok {
		return e
	}
	fd, e := s.add(f)
	if e != ok {
		// The code never gets a number for it, so nobody else would close it.
		f.close(&s.Tree)
		return e
	}
	return m.put32(p[8], fd)
}

func pathReadlink(s *System, m Memory, p []uint64) Errno {
	name, e := s.path(m, p[0], p[1], p[2])
	if e != ok {
		return e
	}
	to, e := s.Tree.readlink(name)
	if e != ok {
		return e
	}
	to = to[:min(len(to), int(uint32(p[4])))]
	if !m.WriteString(uint32(p[3]), to) {
		return eFault
	}
	return m.put32(p[5], uint32(len(to)))
}

func pathRmdir(s *System, m Memory, p []uint64) Errno {
	name, e := s.path(m, p[0], p[1], p[2])
	if e != ok {
		return e
	}
	return s.Tree.remove(name, true)
}

func pathUnlink(s *System, m Memory, p []uint64) Errno {
	name, e := s.path(m, p[0], p[1], p[2])
	if e != ok {
		return e
	}
	return s.Tree.remove(name, false)
}

func pathRename(s *System, m Memory, p []uint64) Errno {
	from, e := s.path(m, p[0], p[1], p[2])
	if e != ok {
		return e
	}
	to, e := s.path(m, p[3], p[4], p[5])
	if e != ok {
		return e
	}
	return s.Tree.rename(from, to)
}

// Types are the parameters of c as WebAssembly names them.
func (c Call) Types() []api.ValueType {
	types := make([]api.ValueType, len(c.Params))
	for i, k := range c.Params {
		types[i] = api.ValueTypeI32
		if k == 'I' {
			types[i] = api.ValueTypeI64
		}
	}
	return types
}

// Results is the type of the Errno that c answers with.
func (c Call) Results() []api.ValueType {
	if c.Name == "proc_exit" {
		return nil
	}
	return []api.ValueType{api.ValueTypeI32}
}
