package confine

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kern-run/kern/internal/program/reap"
	"github.com/kern-run/kern/internal/program/seccomp"
)

// dropCapabilities drops every capability of the calling thread for ever. It calls
// change before the last step, because change may need capabilities.
func dropCapabilities(change func() error) error {
	// The bounding set keeps a program with file capabilities from getting them back.
	for c := uintptr(0); c < 64; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			break // the kernel has no further capability; the caller checks the rest
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

// dropRights drops every right of the calling thread that a program under kern exec may
// not have. It then asks the kernel whether these rights are gone.
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
	// A call may succeed without effect under an emulated kernel, so the kernel is asked.
	if err := unix.Capget(&head, &left[0]); err != nil || left != none {
		return fmt.Errorf("want no capability, the kernel says %v: %w", left, err)
	}
	if bound, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0); err != nil || bound != 0 {
		return fmt.Errorf("want no capability to come back, the kernel says %d: %w", bound, err)
	}
	return nil
}
