// Package jail is the sandbox that runs any program of the host inside walls of the
// Linux kernel. The walls are namespaces, a seccomp allow-list, Landlock, cgroups (v1
// or v2) and a user without rights. Each run gets a box of its own, used once.
//
// The first process of a box, init, is this binary in a role (see package program).
// [New] returns an error in a program that did not call program.Main. Package confine
// holds init and all other code that runs inside a box.
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
// The Linux kernel alone guarantees that a box ends with its backend. When the backend
// dies, the parent death signal kills init, and init also exits when the socket
// closes. When init dies, the kernel kills every other process in the box.
//
// Inside, /usr of the host is read-only. A program starts in /workspace. It may write
// only there, to /tmp and to /dev/shm. The three share one memory file system of
// Limits.FileBytes and Limits.Files, and its pages count as memory too.
//
// A directory of the host that a Spec names is mounted over /workspace. The program
// is uid 1000 there, and on the host the files belong to the owner of the directory.
// A host file system cannot limit one box. Therefore init watches the directory and
// kills the run when it exceeds the limit. A single file cannot exceed it at all.
package jail

// Config configures a Backend. The zero Config is useful.
type Config struct {
	Max      int      // most boxes alive at one time, running or warm; 0: 64
	Warm     int      // Python interpreters kept ready; 0: none
	Python   string   // path of the interpreter inside the box; "": python3 of /usr/local/bin or /usr/bin
	ReadOnly []string // host directories, besides /usr, that the box shows read-only at the same path
	Cgroup   string   // directory below each cgroup hierarchy for new groups; "": this process's own, else the top
}
