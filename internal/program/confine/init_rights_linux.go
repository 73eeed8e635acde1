package confine

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/seccomp"
)

// cutRights drops every right that the program may not have from the calling thread.
// It then asks the kernel whether these rights are gone. The caller must have locked
// the thread, because rights belong to one thread and the processes it starts.
func cutRights(o *Order, tasks []int, rules int) error {
	// The cgroup comes first, because the cgroup namespace below takes it as its root.
	for _, fd := range tasks {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	if err := inGroup(o.Group, o.Groups); err != nil {
		return err
	}
	// From here on, the program sees no cgroup above its own.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cgroup namespace: %w", err)
	}
	change := becomeUser
	if !o.Root {
		change = func() error { return nil } // the box has only this user
	}
	if err := dropCapabilities(change); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	// A warm program puts Landlock in force itself, after its claim.
	if rules >= 0 && !o.Warm {
		if err := permit(rules, o.Landlock, writable...); err != nil {
			return err
		}
		if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); e != 0 {
			return fmt.Errorf("landlock: %w", e)
		}
	}
	// The filter comes last, because it forbids calls that the steps above need.
	if err := seccomp.Install(o.Filter); err != nil {
		return err
	}
	return attest()
}

// inGroup fails unless the kernel says that this thread is in the cgroup in all its
// hierarchies. The limits of a cgroup do not hold for a program outside of it.
func inGroup(name string, groups int) error {
	if groups == 0 {
		return nil
	}
	b, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.HasSuffix(strings.TrimSpace(line), "/"+name) {
			n++
		}
	}
	if n < groups {
		return fmt.Errorf("want to be in the cgroup %s in %d hierarchies, the kernel says %d", name, groups, n)
	}
	return nil
}

// becomeUser changes the user of the calling thread to InsideUID. It makes raw system
// calls, because Go's own functions would change every thread of init.
func becomeUser() error {
	for _, c := range []struct {
		what       string
		trap, a, b uintptr
	}{
		{"groups", unix.SYS_SETGROUPS, 0, 0},
		{"group", unix.SYS_SETRESGID, InsideUID, InsideUID},
		{"user", unix.SYS_SETRESUID, InsideUID, InsideUID},
	} {
		if _, _, e := unix.RawSyscall(c.trap, c.a, c.b, c.b); e != 0 {
			return fmt.Errorf("become %s %d: %w", c.what, InsideUID, e)
		}
	}
	return nil
}

// attest reads users, capabilities, no_new_privs and seccomp back from the kernel. It
// fails before the program exists if the kernel accepted the calls without effect.
func attest() error {
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	id := strconv.Itoa(InsideUID)
	for field, want := range map[string]string{
		"Uid": id + "\t" + id + "\t" + id + "\t" + id, "Gid": id + "\t" + id + "\t" + id + "\t" + id,
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
	} {
		_, rest, _ := bytes.Cut(b, []byte("\n"+field+":\t"))
		got, _, _ := bytes.Cut(rest, []byte("\n"))
		if string(got) != want {
			return fmt.Errorf("rights: want %s %q, the kernel says %q", field, want, got)
		}
	}
	return nil
}
