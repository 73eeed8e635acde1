package program

import (
	"os"
	"path/filepath"
)

// RemoveAll removes a directory, also if a program took the permissions of what
// is in it.
func RemoveAll(dir string) {
	if dir == "" || os.Remove(dir) == nil || os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir) // what remains belongs to another user
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close() // nothing is buffered in a descriptor
	}
}
