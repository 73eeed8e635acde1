package wasi

import (
	"errors"
	"io/fs"
	"syscall"
)

// Errno is an error number of WASI preview 1; zero is success.
type Errno uint32

// The numbers that are used here.
const (
	ok          Errno = 0
	eAcces      Errno = 2
	eBadf       Errno = 8
	eExist      Errno = 20
	eFault      Errno = 21
	eIntr       Errno = 27
	eInval      Errno = 28
	eIO         Errno = 29
	eIsDir      Errno = 31
	eLoop       Errno = 32
	eMfile      Errno = 33
	eNameToLong Errno = 37
	eNoEnt      Errno = 44
	eNoSpc      Errno = 51
	eNotDir     Errno = 54
	eNotEmpty   Errno = 55
	eNotSock    Errno = 57
	eNotSup     Errno = 58
	ePerm       Errno = 63
	eRoFS       Errno = 69
	eSpipe      Errno = 70
	eXdev       Errno = 75
)

var errnos = map[syscall.Errno]Errno{
	syscall.EACCES:       eAcces,
	syscall.EBADF:        eBadf,
	syscall.EEXIST:       eExist,
	syscall.EINTR:        eIntr,
	syscall.EINVAL:       eInval,
	syscall.EISDIR:       eIsDir,
	syscall.ELOOP:        eLoop,
	syscall.EMFILE:       eMfile,
	syscall.ENAMETOOLONG: eNameToLong,
	syscall.ENOENT:       eNoEnt,
	syscall.ENOSPC:       eNoSpc,
	syscall.ENOTDIR:      eNotDir,
	syscall.ENOTEMPTY:    eNotEmpty,
	syscall.EPERM:        ePerm,
	syscall.EROFS:        eRoFS,
	syscall.EXDEV:        eXdev,
}

// errnoOf converts an error of package os. An error without a number is the refusal
// of os.Root to leave its directory.
func errnoOf(err error) Errno {
	var host syscall.Errno
	switch {
	case err == nil:
		return ok
	case errors.As(err, &host):
		if n, known := errnos[host]; known {
			return n
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return eNoEnt
	case errors.Is(err, fs.ErrExist):
		return eExist
	case errors.Is(err, fs.ErrPermission):
		return eAcces
	case errors.Is(err, fs.ErrClosed):
		return eBadf
	case host != 0:
		return eIO
	}
	return ePerm
}
