// Package fsys holds what every part of a workspace needs to know of files:
// the errors with their frozen codes, directory trees in memory with their
// digests and differences, and the few operations that a workspace asks of the
// file system. It resolves every path below a directory that it holds open.
// What a system cannot do is an error and never a weaker operation.
package fsys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Theirs tells that a path is not what it was any more: somebody else's now.
func Theirs(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || isNotDir(err) || Foreign(err)
}

// Beside is how many jobs Together runs at a time. A test that cuts the power
// between two of them runs one after the other, in order.
var Beside = 8

// Together runs jobs a few at a time.
func Together(jobs []func() error) error {
	errs := make([]error, len(jobs))
	var wg sync.WaitGroup
	sem := make(chan struct{}, Beside)
	for i, job := range jobs {
		sem <- struct{}{}
		wg.Go(func() { errs[i] = job(); <-sem })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Replace puts b at name in one step.
func Replace(name string, b []byte, mode fs.FileMode, sync bool) error {
	f, err := os.CreateTemp(filepath.Dir(name), "tmp_")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(mode)
	}
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

// RemoveAll removes a tree of ours, whatever modes it was given.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// RealDir is dir without links, as the paths of two directories compare.
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

// Inside tells that p is dir or lies below it.
func Inside(p, dir string) bool {
	r, err := filepath.Rel(dir, p)
	return err == nil && filepath.IsLocal(r)
}

// A Bound says how much a view may stage; 0 is any amount.
type Bound struct {
	Bytes int64
	Files int // files, directories and links
}
