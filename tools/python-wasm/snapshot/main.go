// Command snapshot makes the image that the wasm sandbox starts from: it runs
// the interpreter up to the point where a program would begin and keeps its
// memory. Clocks and random numbers stand still meanwhile, so the same input
// gives the same bytes.
package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/kern-run/kern/internal/sandbox/wasm/image"
	"github.com/kern-run/kern/internal/sandbox/wasm/rewrite"
	"github.com/kern-run/kern/internal/sandbox/wasm/wasi"
)

const (
	page   = 65536
	limit  = 65536 // pages: what wasm32 can address
	period = 20_000
)

func main() {
	log.SetFlags(0)
	module := flag.String("module", "", "the interpreter, as linked")
	usr := flag.String("usr", "", "directory that is /usr while the image is made")
	boot := flag.String("boot", "", "bootstrap text")
	out := flag.String("o", "", "directory for python.image and library.zip")
	flag.Parse()
	if err := run(*module, *usr, *boot, *out); err != nil {
		log.Fatal("snapshot: ", err)
	}
}

func run(module, usr, boot, out string) error {
	raw, err := os.ReadFile(module)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(boot)
	if err != nil {
		return err
	}
	ticking, loops, err := rewrite.Ticks(raw, "kern_tick", period)
	if err != nil {
		return err
	}
	library := &recorder{FS: os.DirFS(usr), read: map[string]bool{}}
	// Ticks change code and add a global, but no memory. So the image may come from the module without them.
	memory, err := initialise(raw, string(text), library)
	if err != nil {
		return err
	}
	ready, err := rewrite.FromImage(ticking, uint32(len(memory)/page), limit)
	if err != nil {
		return err
	}
	packed, err := image.Pack(image.Image{Module: ready, Memory: memory})
	if err != nil {
		return err
	}
	fmt.Printf("%d loops, module %d bytes, memory %d bytes, packed %d bytes\n", loops, len(ready), len(memory), len(packed))
	if err := os.WriteFile(filepath.Join(out, "python.image"), packed, 0o644); err != nil {
		return err
	}
	return writeLibrary(library, filepath.Join(out, "library.zip"))
}

// A recorder remembers which files of the library the image holds.
type recorder struct {
	fs.FS
	read map[string]bool
}

func (r *recorder) ReadFile(name string) ([]byte, error) {
	r.read[name] = true
	return fs.ReadFile(r.FS, name)
}

// writeLibrary writes what the image does not hold.
func writeLibrary(library *recorder, out string) error {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	files := 0
	err := fs.WalkDir(library.FS, ".", func(name string, d fs.DirEntry, err error) error {
		// A file that the interpreter read is in its memory already.
		if err != nil || d.IsDir() || library.read[name] {
			return err
		}
		content, err := fs.ReadFile(library.FS, name)
		if err != nil {
			return err
		}
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err != nil {
			return err
		}
		files++
		_, err = f.Write(content)
		return err
	})
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	fmt.Printf("library: %d files in the image, %d in %d bytes beside it\n", len(library.read), files, b.Len())
	return os.WriteFile(out, b.Bytes(), 0o644)
}

// initialise runs the interpreter's start and returns its memory.
func initialise(module []byte, boot string, usr fs.FS) ([]byte, error) {
	ctx := context.Background()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	if err := host(ctx, rt, usr); err != nil {
		return nil, err
	}
	m, err := rt.InstantiateWithConfig(ctx, module, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
	if err != nil {
		return nil, err
	}
	stack := m.ExportedGlobal("__stack_pointer")
	before := stack.Get()
	p, err := m.ExportedFunction("kern_alloc").Call(ctx, uint64(len(boot)+1))
	if err != nil {
		return nil, err
	}
	if !m.Memory().Write(uint32(p[0]), append([]byte(boot), 0)) {
		return nil, errors.New("no room for the bootstrap text")
	}
	r, err := m.ExportedFunction("kern_init").Call(ctx, p[0])
	if err != nil {
		return nil, err
	}
	if r[0] != 0 {
		return nil, fmt.Errorf("kern_init gave %d", r[0])
	}
	// Otherwise every instance would carry the bootstrap text.
	if _, err := m.ExportedFunction("kern_free").Call(ctx, p[0]); err != nil {
		return nil, err
	}
	// The stack pointer is a global, and the image holds only the memory.
	if stack.Get() != before {
		return nil, errors.New("the stack pointer moved: the image would not hold the whole state")
	}
	b, _ := m.Memory().Read(0, m.Memory().Size())
	return b, nil
}

// host gives the interpreter its system, and a host with one function, for the
// bootstrap to try.
func host(ctx context.Context, rt wazero.Runtime, usr fs.FS) error {
	// Clock and random numbers stand still, so that the same input gives the same image.
	still := time.Unix(1767225600, 0)
	var now time.Duration
	s := &wasi.System{
		Tree:   wasi.Tree{Base: usr},
		Output: func(_ int, b []byte) { os.Stderr.Write(b) },
		Random: zeros{},
		Wall:   func() time.Time { return still },
		Mono:   func() time.Duration { now += time.Microsecond; return now },
		CPU:    func() time.Duration { return now },
	}
	s.Start()
	b := rt.NewHostModuleBuilder(wasi.Module)
	for _, c := range wasi.Calls {
		b.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, p []uint64) {
			e := c.Do(s, wasi.Memory{Memory: m.Memory()}, p)
			if len(p) > 0 {
				p[0] = uint64(e)
			}
		}), c.Types(), c.Results()).Export(c.Name)
	}
	if _, err := b.Instantiate(ctx); err != nil {
		return err
	}
	i32 := api.ValueTypeI32
	none := func(context.Context, api.Module, []uint64) {}
	// One function is enough for the bootstrap to import all that it needs for calls.
	const describe, function = -1, `[{"namespace": "warm", "name": "f", "doc": "", "params": [{"name": "a", "type": "int"}]}]`
	answer := func(_ context.Context, m api.Module, p []uint64) {
		reply := "null"
		if int32(p[0]) == describe {
			reply = function
		}
		if !m.Memory().WriteString(uint32(p[3]), reply) {
			panic("no room for a reply")
		}
		p[0] = uint64(len(reply))
	}
	_, err := rt.NewHostModuleBuilder("kern").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(none), nil, nil).Export("tick").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(none), []api.ValueType{i32}, nil).Export("read").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(answer), []api.ValueType{i32, i32, i32, i32, i32}, []api.ValueType{i32}).Export("call").
		Instantiate(ctx)
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
