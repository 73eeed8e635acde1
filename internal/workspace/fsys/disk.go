// Package fsys holds what every part of a workspace needs to know of files:
// the errors with their frozen codes, directory trees in memory with their
// digests and differences, and the few operations that a workspace asks of the
// file system. It resolves every path below a directory that it holds open. If a
// system lacks an operation, the call fails; it never does something weaker.
package fsys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// ChangedOutside reports whether err means that somebody else replaced or removed
// the path.
func ChangedOutside(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || isNotDir(err) || IsOtherMount(err)
}

// Parallel is how many jobs RunAll runs at a time. A test that simulates a power
// failure sets it to 1, so that jobs run in order.
var Parallel = 8

// RunAll runs jobs, a few at a time.
func RunAll(jobs []func() error) error {
	errs := make([]error, len(jobs))
	var wg sync.WaitGroup
	sem := make(chan struct{}, Parallel)
	for i, job := range jobs {
		sem <- struct{}{}
		wg.Go(func() { errs[i] = job(); <-sem })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Replace writes b to name in one step.
func Replace(name string, b []byte, mode fs.FileMode, sync bool) error {
	f, err := os.CreateTemp(filepath.Dir(name), "tmp_")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(mode)
	}
	// The content must be on disk before the name shows it, or a crash could leave an empty file.
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	if sync {
		return Sync(filepath.Dir(name))
	}
	return nil
}

// CopyFile copies a file. The target must not exist.
func CopyFile(to, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	g, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(Copy(g, f, fi.Size()), g.Close())
}

// RemoveAll removes a tree, also if its directories are not writable.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	// Programs may leave directories without write permission, in which even their owner removes nothing.
	filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// RealDir resolves all links in dir, so that paths of directories can be compared.
func RealDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(real)
	if err == nil && !fi.IsDir() {
		err = Errorf(Refused, dir, "expected a directory")
	}
	return real, err
}

// Inside reports whether p is dir or lies below it.
func Inside(p, dir string) bool {
	r, err := filepath.Rel(dir, p)
	return err == nil && filepath.IsLocal(r)
}

// A Limit bounds what a view may stage. 0 means no bound.
type Limit struct {
	Bytes int64
	Files int // files, directories and links
}
