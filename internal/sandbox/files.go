package sandbox

import (
	"io"
	"io/fs"
	"time"
)

// An FS shows a workspace that is no directory of the host. Backends that run code
// in this process use it. Names are relative and have slashes, links never lead
// outside, and errors are those of package os. [os.Root] nearly implements it.
type FS interface {
	Reader
	Changer
}

// A Reader describes files. Stat follows a link, Lstat does not.
type Reader interface {
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

// A File is an open file. An open directory is a [Folder], too.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.WriteCloser // at the end, when opened to append
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
}

// A Folder is an open directory. ReadDir continues where it stopped, as in os.File.
// Seek to 0 starts again.
type Folder interface {
	ReadDir(n int) ([]fs.DirEntry, error)
	io.Seeker
}
