package wasm

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/kern-run/kern/internal/sandbox/wasm/image"
	"github.com/kern-run/kern/internal/sandbox/wasm/wasi"
)

// An engine holds the compiled code and the image, which all instances share.
type engine struct {
	rt       wazero.Runtime
	cache    wazero.CompilationCache
	compiled wazero.CompiledModule
	picture  *picture
	library  fs.FS
	turns    *turns
	hot      touched // by a first run; known before the pool is filled

	live, peak atomic.Int64 // instances
}

func newEngine(cacheDir string) (*engine, error) {
	packed, err := image.Open(image.Python)
	if err != nil {
		return nil, err
	}
	dir, err := openCache(cacheDir)
	if err != nil {
		return nil, err
	}
	e := &engine{turns: newTurns()}
	if err := e.start(packed, dir); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *engine) start(packed *image.Packed, dir *cache) error {
	ctx := experimental.WithCompilationWorkers(context.Background(), runtime.GOMAXPROCS(0))
	library, err := zip.NewReader(strings.NewReader(image.Library), int64(len(image.Library)))
	if err != nil {
		return fmt.Errorf("sandbox wasm: the library: %w", err)
	}
	e.library = library
	config, err := compiler()
	if err != nil {
		return err
	}
	if dir != nil {
		if e.cache, err = wazero.NewCompilationCacheWithDir(dir.path); err != nil {
			return fmt.Errorf("sandbox wasm: CacheDir: %w", err)
		}
		config = config.WithCompilationCache(e.cache)
	}
	e.rt = wazero.NewRuntimeWithConfig(ctx, config)

	// The image is unpacked while the code is compiled or fetched.
	pictured := make(chan error, 1)
	go func() {
		var err error
		e.picture, err = newPicture(packed, dir.loader("memory", packed.MemorySize, packed.Memory))
		pictured <- err
	}()
	return errors.Join(e.compile(ctx, packed, dir), <-pictured)
}

func (e *engine) compile(ctx context.Context, packed *image.Packed, dir *cache) error {
	module := make([]byte, packed.ModuleSize)
	if err := dir.loader("module", packed.ModuleSize, packed.Module)(module); err != nil {
		return err
	}
	if err := e.hosts(ctx); err != nil {
		return err
	}
	var err error
	e.compiled, err = e.rt.CompileModule(ctx, module)
	return err
}

// hosts makes the two modules that the interpreter imports from.
func (e *engine) hosts(ctx context.Context) error {
	system := e.rt.NewHostModuleBuilder(wasi.Module)
	for _, c := range wasi.Calls {
		system.NewFunctionBuilder().WithGoModuleFunction(systemCall(c), c.Types(), c.Results()).Export(c.Name)
	}
	_, err := system.Instantiate(ctx)
	i32 := api.ValueTypeI32
	_, err2 := e.rt.NewHostModuleBuilder("kern").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(tick), nil, nil).Export("tick").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(hostRead), []api.ValueType{i32}, nil).Export("read").
		NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(hostCall), []api.ValueType{i32, i32, i32, i32, i32}, []api.ValueType{i32}).Export("call").
		Instantiate(ctx)
	return errors.Join(err, err2)
}

func (e *engine) close() error {
	var err error
	if e.rt != nil {
		err = e.rt.Close(context.Background())
	}
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(context.Background()))
	}
	if e.picture != nil {
		e.picture.close()
		e.picture = nil
	}
	return err
}

// compiler returns wazero's compiler, or a refusal where it has none. Its interpreter
// is a hundred times slower, and the limits were not measured with it.
func compiler() (c wazero.RuntimeConfig, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = refuse("no compiler for %s on %s: %v", runtime.GOARCH, runtime.GOOS, r)
		}
	}()
	return wazero.NewRuntimeConfigCompiler(), nil
}

// instance makes an interpreter in the state of the image.
func (e *engine) instance() (*instance, error) {
	mem, err := e.picture.memory()
	if err != nil {
		return nil, err
	}
	// No start function: the image is the memory after it ran.
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	mod, err := e.rt.InstantiateModule(mem.within(context.Background()), e.compiled, config)
	if err != nil {
		mem.Free()
		return nil, fmt.Errorf("sandbox wasm: new instance: %w", err)
	}
	in := &instance{
		engine: e, mod: mod, mem: mem,
		alloc: mod.ExportedFunction("kern_alloc"), enter: mod.ExportedFunction("kern_run"),
		stack: mod.ExportedGlobal("__stack_pointer"),
	}
	in.top = in.stack.Get()
	// Many goroutines make instances, and the peak must never fall.
	for n := e.live.Add(1); ; {
		p := e.peak.Load()
		if n <= p || e.peak.CompareAndSwap(p, n) {
			return in, nil
		}
	}
}
