// Package jail is the sandbox that runs any program of the host behind the walls of
// the Linux kernel: namespaces, a seccomp allow-list, Landlock, cgroups (v1 or v2)
// and a user without rights. Each run gets a box of its own, used once.
//
// The first process of a box, init, is this binary in a role (see package program).
// [New] refuses in a program that did not call program.Main. Package confine has
// init and everything else that happens inside.
//
//	backend                         init (this program again, PID 1 of the box)
//	  cgroup, pipes, workspace
//	  clone with namespaces ───────▶ waits
//	  order + descriptors ─────────▶ builds the root, enters it
//	                                 one thread: cgroup, no rights, Landlock, seccomp; it
//	                                 reads them back, then starts the program
//	  ◀──────────────── started ───  reaps, watches files
//	  watches wall, CPU, output
//	  ◀─────────────────── done ───  the program ended: kill the rest, report, exit
//
// The kernel alone guarantees the end: when the backend dies it kills init (parent
// death signal, and the socket closes), and when init dies it kills everything in
// the box.
//
// Inside, /usr of the host is read-only. A program may write only to /workspace,
// where it starts, to /tmp and to /dev/shm. They share one memory file system of
// Limits.FileBytes and Limits.Files, and its pages count as memory too. A named
// directory is mounted over /workspace: the program is uid 1000 there, and on the
// host the files belong to the owner of the directory. A host file system cannot
// limit one box, so the named directory is watched, and the run is killed when it
// goes past the limit. A single file cannot grow past it at all.
package jail

// Config configures a Backend. The zero Config is useful.
type Config struct {
	Max      int      // most boxes alive at one time, running or warm; 0: 64
	Warm     int      // Python interpreters kept ready; 0: none
	Python   string   // the interpreter, as the box sees it; "": python3 of /usr/local/bin or /usr/bin
	ReadOnly []string // host directories the box sees read-only at their own path, beside /usr
	Cgroup   string   // directory below each cgroup hierarchy to work in; "": this process's own, else the top
}
