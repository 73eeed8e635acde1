package sandbox

import (
	"io"
	"io/fs"
	"time"
)

// An FS is a workspace that is no directory of the host, for a backend whose
// code runs in this program: names are relative and have slashes, links lead
// nowhere outside, and errors are those of package os. [os.Root] is nearly one.
type FS interface {
	Looker
	Changer
}

// A Looker looks at files. Stat follows a link, Lstat does not.
type Looker interface {
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
}

// A Changer opens and changes files, with the flags of os.OpenFile.
type Changer interface {
	OpenFile(name string, flag int, mode fs.FileMode) (File, error)
	Mkdir(name string, mode fs.FileMode) error
	Remove(name string) error
	Rename(from, to string) error
	Chtimes(name string, access, modified time.Time) error
}

// A File is an open file. One that is a directory is a [Folder] too.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.WriteCloser // at the end, when opened to append
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
}

// A Folder is an open directory. ReadDir goes on where it stopped, as that of
// os.File; Seek to 0 begins anew.
type Folder interface {
	ReadDir(n int) ([]fs.DirEntry, error)
	io.Seeker
}
