package confine

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/reap"
	"github.com/kern-run/kern/internal/program/seccomp"
)

// dropCapabilities takes every capability from the calling thread, for good. In
// between it calls change, which may need the last of them.
func dropCapabilities(change func() error) error {
	for c := uintptr(0); c < 64; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			break // past the kernel's last one; the caller checks what is left
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	if err := change(); err != nil {
		return err
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// dropRights takes from the calling thread what a program under kern exec may not
// have, and asks the kernel whether it is gone.
func dropRights() error {
	if err := dropCapabilities(func() error { return nil }); err != nil {
		return err
	}
	if err := reap.Confine(reap.ScopedSince); err != nil { // sets no_new_privs
		return err
	}
	for _, filter := range []func() (string, error){seccomp.NoTyping, seccomp.Lenient} {
		f, err := filter()
		if err == nil {
			err = seccomp.Install(f)
		}
		if err != nil {
			return err
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none, left [2]unix.CapUserData
	if err := unix.Capget(&head, &left[0]); err != nil || left != none {
		return fmt.Errorf("want no capability, the kernel says %v: %w", left, err)
	}
	if bound, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil || bound != 0 {
		return fmt.Errorf("want no capability to come back, the kernel says %d: %w", bound, err)
	}
	return nil
}
