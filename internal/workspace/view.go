package workspace

// A ground is what a view stands on.
type ground struct {
	place    *place // the workspace
	base     entry  // what was known of it when the transaction began
	scratch  string // the transaction's own directory
	quota    Bound
	writeGit bool
	rules    *rules
}

// A change is one name of the staged form: what path becomes.
type change struct {
	path string
	e    *entry // nil: gone, with all below it
	src  string // the file in scratch that holds the content of a File
	move bool   // src is ours alone and may become the slot; else it is copied
	base string // or: the workspace's own file at this path gets a further name here
	from *entry // what base was when the view looked at it
	seen *print // what the view saw here when it first looked: zero for nothing, nil for unknown
	slot string // where the content lies after fill
}

// A view is one way to stage changes. changes closes it to its user and says
// what was staged, sorted by path; end takes it down and may come at any time.
type view interface {
	changes() ([]change, error)
	end() error
}

// still tells that a file of the workspace is what the view found there: the
// file itself, or one with the content that was known.
func (g *ground) still(name string, from, now *entry, h Hash) bool {
	if now.fp.ino == from.fp.ino && now.Time == from.Time && now.Size == from.Size {
		return true
	}
	b := g.base.lookup(name)
	return b != nil && b.fp.ino == from.fp.ino && b.Time == from.Time && !b.ignored && b.Hash == h
}

func bounded(opt Bound) bool { return opt.Bytes > 0 || opt.Files > 0 }
