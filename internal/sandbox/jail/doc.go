// Package jail runs any program of the host behind the walls of the Linux
// kernel: namespaces, a seccomp allow-list, Landlock, cgroups (v1 or v2) and a
// user without rights. Each run gets a box of its own, used once.
//
// A box is built by this program executing itself: package main must call
// [Main] before anything else, and a test binary must call it first in
// TestMain. In a process that was not started to build a box Main returns at
// once and changes nothing; in one that was, it never returns. [New] refuses
// in a program that did not call it, so a library cannot hijack its host's
// main without being asked.
//
//	supervisor                      init (this program again, PID 1 of the box)
//	  cgroup, pipes, workspace
//	  clone with namespaces ───────▶ waits
//	  order + descriptors ─────────▶ builds the root, enters it
//	                                 one thread: cgroup, no rights, Landlock, seccomp; it
//	                                 reads back what holds, then starts the program
//	  ◀──────────────── started ───  reaps, watches files
//	  watches wall, CPU, output
//	  ◀─────────────────── done ───  the program ended: kill the rest, report, exit
//
// What holds without anybody's help: when the supervisor dies the kernel kills
// init (parent death signal, and init sees the socket close), and when init
// dies the kernel kills everything in the box.
//
// Inside, /usr of the host is read-only, and /workspace (where the program
// starts), /tmp and /dev/shm are the only places to write. They share one
// memory file system of Limits.FileBytes and Limits.Files, whose pages count
// as memory too. A named directory is mounted over /workspace: the program is
// uid 1000 there, and on the host the files belong to the directory's owner.
// A host file system cannot be asked to refuse a box's bytes, so a named
// directory is watched and the run killed when it goes past; a single file
// cannot grow past the limit at all.
package jail

// Config says how a Backend works. The zero Config is useful.
type Config struct {
	Max      int      // most boxes alive at one time, running or warm; 0: 64
	Warm     int      // Python interpreters kept ready; 0: none
	Python   string   // the interpreter, as the box sees it; "": python3 of /usr/local/bin or /usr/bin
	ReadOnly []string // host directories the box sees read-only at their own path, beside /usr
	Cgroup   string   // directory below each cgroup hierarchy to work in; "": this process's own, else the top
}
