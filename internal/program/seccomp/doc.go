// Package seccomp makes and installs the system call filters of jails.
package seccomp
