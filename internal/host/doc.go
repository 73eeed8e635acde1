// Package host joins the parts of Kern over one data directory: the kernel, its
// rows, models, tools, workspaces, sandboxes, the gateway and the built-in loop.
//
// The daemon and the Go API are its two users. Package host decides nothing about a
// call, because kernel.Do does.
package host
