package host

import "github.com/kern-run/kern/internal/workspace"

// Feedback is what the end of a call tells of the provider it was at.
var Feedback = feedback

// OnSpace has f told of every workspace that is opened, before what is in doubt
// there is decided.
func OnSpace(f func(*workspace.Workspace)) { opened = f }

// Space is the workspace of a directory.
func (k *Kernel) Space(dir string) (*workspace.Workspace, error) { return k.spaces.get(dir) }

// Hosted is for how many processes there are Go tools.
func (k *Kernel) Hosted() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.hosted)
}
