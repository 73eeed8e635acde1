package wasi

import (
	"io/fs"
	"os"

	"github.com/tetratelabs/wazero/sys"

	"github.com/kern-run/kern/internal/sandbox"
)

// host is a directory of the host as a guest's files.
type host struct{ *os.Root }

func (h host) OpenFile(name string, flag int, mode fs.FileMode) (sandbox.File, error) {
	f, err := h.Root.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// statOf is what the host says of a file. Files that are not of the host have
// no numbers: the guest, which tells files apart by them, is given one.
func statOf(p string, info fs.FileInfo) sys.Stat_t {
	st := sys.NewStat_t(info)
	if st.Ino == 0 {
		st.Ino, st.Nlink = number(p), 1
	}
	return st
}
