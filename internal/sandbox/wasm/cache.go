package wasm

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"crypto/sha256"

	"github.com/kern-run/kern/internal/sandbox/wasm/image"
)

// A cache is a directory with compiled code for other processes. Its content
// becomes code of this process, so no other user may write there.
type cache struct{ path, key string }

// openCache makes dir and checks its owner and mode. It returns nil for "".
func openCache(dir string) (*cache, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, refuse("CacheDir: %v", err)
	}
	if why := shared(dir); why != "" {
		r := refuse("want CacheDir %s to be writable by this user only: %s", dir, why)
		r.Fix = "chmod go-w " + dir
		return nil, r
	}
	sum := sha256.Sum256([]byte(image.Sums))
	return &cache{path: dir, key: hex.EncodeToString(sum[:8])}, nil
}

// Cold reports whether New must compile the interpreter, because the directory has no
// code of this version yet.
func Cold(cacheDir string) bool {
	c, err := openCache(cacheDir)
	if err != nil {
		return false // New says why
	}
	if c == nil {
		return true
	}
	_, err = os.Stat(c.file("module"))
	return err != nil
}

// file returns the path of a cached file.
func (c *cache) file(name string) string {
	return filepath.Join(c.path, "python-"+c.key+"."+name)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// loader returns a function that fills a buffer from the cache. If the cached file is
// missing or torn, the function calls unpack and writes the file. Without a cache,
// loader returns unpack.
func (c *cache) loader(name string, size int, unpack func([]byte) error) func([]byte) error {
	if c == nil {
		return unpack
	}
	path := c.file(name)
	return func(b []byte) error {
		if readWhole(path, b) {
			return nil
		}
		// A torn file may have filled a part of b, and unpacking leaves out parts that are zero.
		clear(b)
		if err := unpack(b); err != nil {
			return err
		}
		if err := writeWhole(path, b); err != nil {
			return fmt.Errorf("sandbox wasm: CacheDir: %w", err)
		}
		return nil
	}
}

// readWhole reads a file of exactly b and its checksum.
func readWhole(path string, b []byte) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	// A crash may have cut the file, because writeWhole does not sync.
	if err != nil || st.Size() != int64(len(b)+4) {
		return false
	}
	var sum [4]byte
	if _, err := f.ReadAt(sum[:], int64(len(b))); err != nil {
		return false
	}
	n, err := f.ReadAt(b, 0)
	return err == nil && n == len(b) && binary.LittleEndian.Uint32(sum[:]) == crc32.Checksum(b, castagnoli)
}

// writeWhole writes b with its checksum. Readers see the whole file or no file.
func writeWhole(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(binary.LittleEndian.AppendUint32(append([]byte(nil), b...), crc32.Checksum(b, castagnoli)))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
