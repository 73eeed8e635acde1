package userns

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// settings are the kernel settings that deny user namespaces to ordinary users: the
// value that denies, and the command that allows.
var settings = []struct{ name, off, fix string }{
	{"user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"},
	{"kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
	{"kernel/apparmor_restrict_unprivileged_userns", "1",
		"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for this program that says userns"},
}

// Refused reports whether err means that this host allows no namespaces, or gives no
// rights in them, as AppArmor does.
func Refused(err error) bool {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Remedy returns a hint: how to allow user namespaces on this host.
func Remedy() string { return remedy("/proc/sys/") }

func remedy(sys string) string {
	var all []string
	for _, s := range settings {
		b, err := os.ReadFile(sys + s.name)
		if err == nil && strings.TrimSpace(string(b)) == s.off {
			all = append(all, s.fix)
		}
	}
	if len(all) == 0 {
		return "the settings of this host allow it: look at what the container or service withholds that this runs in, by its seccomp or AppArmor profile, or by covering parts of /proc"
	}
	return strings.Join(all, "; ")
}
