// The face of the interpreter towards its host. It is a reactor: initialised
// once, when the image is made, and entered again for each run, so between two
// entries the whole state is the linear memory and there is no stack to save.
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
#include <Python.h>
#include "pycore_moduleobject.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT(n) __attribute__((import_module("kern"), import_name(n)))
#define EXPORT(n) __attribute__((export_name(n), visibility("default")))

// call asks the host for operation op and returns the length of its reply, or
// -(length+1) when the reply is an error. A reply of at most cap bytes is in
// out already; a longer one is fetched with read.
IMPORT("call") int32_t host_call(int32_t op, const void *in, int32_t inlen, void *out, int32_t cap);
IMPORT("read") void host_read(void *dst);
IMPORT("tick") void host_tick(void);

EXPORT("kern_tick") void kern_tick(void) { host_tick(); }
EXPORT("kern_alloc") void *kern_alloc(int32_t n) { return malloc(n); }
EXPORT("kern_free") void kern_free(void *p) { free(p); }

// How a run ended; the host knows the same numbers.
enum { RUN_OK = 0, RUN_EXCEPTION = 1, RUN_MEMORY = 2, RUN_EXIT = 0x100 };

static PyObject *make_error; // text of an error reply -> exception
static PyObject *begin;      // (source, flags) -> file name
static PyObject *finish;     // (flags)

// kern_call(op, payload) -> str
static PyObject *kern_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    static char reply[4000];
    if (nargs != 2 || !PyLong_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "call(op, payload)");
        return NULL;
    }
    Py_ssize_t n;
    const char *in = PyUnicode_AsUTF8AndSize(args[1], &n);
    if (!in) return NULL;
    int32_t got = host_call((int32_t)PyLong_AsLong(args[0]), in, (int32_t)n, reply, sizeof reply);
    int32_t len = got < 0 ? -(got + 1) : got;
    PyObject *text;
    if (len <= (int32_t)sizeof reply) {
        text = PyUnicode_DecodeUTF8(reply, len, "replace");
    } else {
        char *big = PyMem_RawMalloc(len);
        if (!big) return PyErr_NoMemory();
        host_read(big);
        text = PyUnicode_DecodeUTF8(big, len, "replace");
        PyMem_RawFree(big);
    }
    if (!text || got >= 0) return text;
    PyObject *e = PyObject_CallOneArg(make_error, text);
    Py_DECREF(text);
    if (!e) return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    return NULL;
}

// kern_hooks(make_error, begin, finish)
static PyObject *kern_hooks(PyObject *self, PyObject *args) {
    if (!PyArg_ParseTuple(args, "OOO", &make_error, &begin, &finish)) return NULL;
    Py_INCREF(make_error);
    Py_INCREF(begin);
    Py_INCREF(finish);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"call", (PyCFunction)(void (*)(void))kern_call, METH_FASTCALL, NULL},
    {"hooks", kern_hooks, METH_VARARGS, NULL},
    {NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kern", NULL, -1, methods};
static PyObject *init_kern(void) { return PyModule_Create(&module); }

static int failed(PyStatus s) {
    if (!PyStatus_Exception(s)) return 0;
    fprintf(stderr, "python: %s: %s\n", s.func ? s.func : "init", s.err_msg ? s.err_msg : "failed");
    return 1;
}

// kern_init starts the interpreter and runs the bootstrap text: 0 when it is
// ready to be the image.
EXPORT("kern_init") int32_t kern_init(const char *boot) {
    PyImport_AppendInittab("_kern", init_kern);
    PyPreConfig pre;
    PyPreConfig_InitIsolatedConfig(&pre);
    pre.utf8_mode = 1;
    if (failed(Py_PreInitialize(&pre))) return 1;
    PyConfig c;
    PyConfig_InitIsolatedConfig(&c);
    c.site_import = 0;
    c.write_bytecode = 0;
    c.install_signal_handlers = 0;
    c.buffered_stdio = 1;
    c.use_hash_seed = 1; // one image, one seed: it says nothing about the host
    c.hash_seed = 20261121;
    c.module_search_paths_set = 1;
    c.parse_argv = 0;
    struct { wchar_t **field; const wchar_t *value; } text[] = {
        {&c.program_name, L"python3"}, {&c.executable, L"/usr/bin/python3"}, {&c.base_executable, L"/usr/bin/python3"},
        {&c.home, L"/usr"}, {&c.prefix, L"/usr"}, {&c.exec_prefix, L"/usr"},
        {&c.base_prefix, L"/usr"}, {&c.base_exec_prefix, L"/usr"}, {&c.stdlib_dir, L"/usr/lib/python3.13"},
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (failed(PyConfig_SetString(&c, text[i].field, text[i].value))) return 1;
    if (failed(PyWideStringList_Append(&c.module_search_paths, L"/usr/lib/python3.13"))) return 1;
    PyStatus s = Py_InitializeFromConfig(&c);
    PyConfig_Clear(&c);
    if (failed(s)) return 1;
    PyObject *scope = PyModule_GetDict(PyImport_AddModule("_kern_bridge"));
    PyObject *code = Py_CompileString(boot, "<kern>", Py_file_input);
    PyObject *v = code ? PyEval_EvalCode(code, scope, scope) : NULL;
    if (!v) {
        PyErr_Print();
        return 2;
    }
    Py_DECREF(v);
    Py_DECREF(code);
    PyGC_Collect();
    return make_error && begin && finish ? 0 : 3;
}

// exit_code takes the pending SystemExit and answers as python itself would.
static int32_t exit_code(void) {
    PyObject *e = PyErr_GetRaisedException();
    PyObject *code = PyObject_GetAttrString(e, "code");
    int32_t n = 1;
    Py_DECREF(e);
    if (!code) {
        PyErr_Clear();
    } else if (code == Py_None) {
        n = 0;
    } else if (PyLong_Check(code)) {
        n = (int32_t)(PyLong_AsUnsignedLongMask(code) & 0xff);
    } else {
        PyObject *err = PySys_GetObject("stderr");
        if (err && (PyFile_WriteObject(code, err, Py_PRINT_RAW) || PyFile_WriteString("\n", err))) PyErr_Clear();
    }
    Py_XDECREF(code);
    PyErr_Clear();
    return RUN_EXIT | n;
}

// raised turns the pending exception into the answer of a run, and prints it.
static int32_t raised(void) {
    if (PyErr_ExceptionMatches(PyExc_SystemExit)) return exit_code();
    int32_t rc = PyErr_ExceptionMatches(PyExc_MemoryError) ? RUN_MEMORY : RUN_EXCEPTION;
    PyErr_Print();
    return rc;
}

static void flush(const char *name) {
    PyObject *f = PySys_GetObject(name);
    if (!f || f == Py_None) return;
    PyObject *r = PyObject_CallMethod(f, "flush", NULL);
    if (!r) PyErr_Clear();
    Py_XDECREF(r);
}

// Flags of a run.
enum { FLAG_ENV = 1, FLAG_KEEP = 2 };

// kern_run runs source text in __main__ and frees it. With FLAG_KEEP the
// variables stay for the next run; without, the end is that of a program.
EXPORT("kern_run") int32_t kern_run(char *src, int32_t len, int32_t flags) {
    PyObject *main = PyImport_AddModule("__main__");
    PyObject *dict = PyModule_GetDict(main);
    PyObject *text = PyUnicode_DecodeUTF8(src, len, "strict");
    PyObject *name = text ? PyObject_CallFunction(begin, "Oi", text, flags) : NULL;
    Py_XDECREF(text);
    PyCompilerFlags cf = {PyCF_SOURCE_IS_UTF8 | PyCF_IGNORE_COOKIE, PY_MINOR_VERSION};
    PyObject *code = name ? Py_CompileStringObject(src, name, Py_file_input, &cf, -1) : NULL;
    free(src);
    Py_XDECREF(name);
    PyObject *v = code ? PyEval_EvalCode(code, dict, dict) : NULL;
    Py_XDECREF(code);
    int32_t rc = v ? RUN_OK : raised();
    Py_XDECREF(v);
    if (!(flags & FLAG_KEEP)) {
        PyObject *r = PyObject_CallFunction(finish, "i", flags);
        if (!r) PyErr_Clear();
        Py_XDECREF(r);
    }
    flush("stdout");
    if (!(flags & FLAG_KEEP)) {
        _PyModule_Clear(main);
        PyErr_Clear();
        flush("stdout");
    }
    flush("stderr");
    return rc;
}
