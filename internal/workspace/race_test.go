//go:build race

package workspace

// racing makes the short forms shorter: what the detector looks for is in a
// third of the crash points as well as in all of them.
const racing = true
