package wasi

import (
	"io/fs"
	"os"

	"github.com/tetratelabs/wazero/sys"

	"github.com/kern-run/kern/internal/sandbox"
)

// host shows a directory of the host to the code.
type host struct{ *os.Root }

func (h host) OpenFile(name string, flag int, mode fs.FileMode) (sandbox.File, error) {
	f, err := h.Root.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// statOf converts the metadata of a file. A file without an inode gets a number made
// from its path, because code tells files apart by it.
func statOf(p string, info fs.FileInfo) sys.Stat_t {
	st := sys.NewStat_t(info)
	if st.Ino == 0 {
		st.Ino, st.Nlink = number(p), 1
	}
	return st
}
