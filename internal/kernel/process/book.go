package process

import (
	"cmp"
	"slices"

	"github.com/kern-run/kern/abi"
)

// A Book adds up what calls used, by hour, model, account and name. It is a fold of
// the journal, so its sums are those of the accounts. A nil Book keeps nothing.
type Book struct{ sums map[abi.Spent]*abi.Usage }

// NewBook returns an empty book.
func NewBook() *Book { return &Book{make(map[abi.Spent]*abi.Usage)} }

// Add adds a line.
func (b *Book) Add(s abi.Spent) {
	if b == nil || s.Usage[abi.Money] == 0 && s.Usage[abi.ModelCalls] == 0 {
		return // a call that costs nothing is in no bill
	}
	key := s
	key.Usage = abi.Usage{}
	sum := b.sums[key]
	if sum == nil {
		sum = new(abi.Usage)
		b.sums[key] = sum
	}
	sum.Add(&s.Usage)
}

// Lines returns the lines of the book, in order.
func (b *Book) Lines() (all []abi.Spent) {
	if b == nil {
		return nil
	}
	for s, sum := range b.sums {
		s.Usage = *sum
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b abi.Spent) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// hour is the length of the time that a line of a book covers, in nanoseconds.
const hour = 3600 * 1_000_000_000

// entries books what the calls of one process use.
type entries struct {
	book          *Book
	account, name string
}

// add books what an attempt used.
func (e *entries) add(at int64, in *abi.Intent, used *abi.Usage) {
	if e.book != nil {
		e.addTo(at, modelOf(in), used)
	}
}

// addTo books what an attempt used under the name of a model.
func (e *entries) addTo(at int64, model string, used *abi.Usage) {
	e.book.Add(abi.Spent{Hour: at / hour, Model: model, Account: e.account, Name: e.name, Usage: *used})
}

// modelOf returns the name under which a call is booked: its model or its tool.
func modelOf(in *abi.Intent) string {
	switch {
	case in == nil:
		return ""
	case in.Row == ModelRow:
		return in.Model
	}
	return "tool " + NameOf(in)
}

// entriesOf finds the account and the name under which a new process is booked:
// its own, or those of the process above it.
func (m *Machine) entriesOf(spawn *abi.Spawn) entries {
	e := entries{book: m.Book, account: spawn.Account, name: spawn.Name}
	if parent := m.States[spawn.Parent]; parent != nil {
		e.account, e.name = parent.Calls.entries.account, cmp.Or(e.name, parent.Calls.entries.name)
	} else if g, ok := m.Buried[spawn.Parent]; ok {
		above := g.Unpack()
		e.account, e.name = m.accountAbove(spawn.Parent), cmp.Or(e.name, above.Name)
	}
	return e
}

// accountAbove returns the named account above a process that was buried.
func (m *Machine) accountAbove(pid abi.Pid) string {
	for parent := m.Tree.Parent(pid); parent != 0; parent = m.Tree.Parent(pid) {
		pid = parent
	}
	if s := m.States[pid]; s != nil {
		return s.Spawn.Account
	}
	if g, ok := m.Buried[pid]; ok {
		sum := g.Unpack()
		return sum.Account
	}
	return ""
}
