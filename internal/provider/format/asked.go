package format

import (
	"bytes"
	"slices"
	"strings"

	"github.com/kern-run/kern/internal/provider/tariff"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

// An answer is put together from what came.
type answer struct {
	bill
	asked
	id, model string
	stop      model.Stop
	ends      []int // choices that came to their end
	crowded   bool  // there are more choices than can be asked for
	done      bool
	idle      bool // the event has the usage that was asked for and nothing else
	events    int
	sequence  int64
	malformed string
	failure   *model.Error
	of        *tariff.Request // where the format lets a later request refer to what is kept of this answer
	kept      []Kept
}

// A bill is what the provider said of what it took.
type bill struct {
	usage              model.Usage
	hasInput, reported bool
	covers             int // bytes that had been said when the count of output came
	thought, hour      int64
	searches           int64
	tier               string
}

// told says that the provider counted all that came so far. There are servers
// that begin with a count of the input and none of the output, or repeat one.
func (a *answer) told() bool {
	return a.reported && a.covers == a.size && (a.usage.Output > 0 || a.size == 0)
}

// A tally is what was said, and how much that is.
type tally struct {
	count  tokens.Counter
	onText func(piece string) // nil: nobody listens
	text   strings.Builder
	said   []byte // what was said, thought and asked for, not yet counted
	tokens int64  // of what was counted
	size   int    // bytes of all of it
}

// asked holds the tool calls of an answer, in the order they began.
type asked struct {
	tally
	list    []*part
	waiting int // calls that were not released
	at      int // how much was held before this event
}

// A part is a call as it comes.
type part struct {
	Call
	choice, at int // the provider's indices
	args       strings.Builder
	from       int  // where what is held of it begins
	free       bool // it was released
}

func (p *part) call() Call {
	c := p.Call
	c.Args = p.args.String()
	if c.Args == "" && p.Whole {
		c.Args = "{}" // how the formats write a call without arguments
	}
	return c
}

func (t *tally) say(s []byte) {
	t.text.Write(s)
	if t.onText != nil && len(s) > 0 {
		t.onText(string(s))
	}
	t.think(s)
}

// think counts what is not part of the text.
func (t *tally) think(s []byte) {
	t.size += len(s)
	t.said = append(t.said, s...)
}

func (a *asked) add(p *part, args string) {
	p.args.WriteString(args)
	a.think([]byte(args))
}

// full says that there are more calls than an answer may have. Later parts are not
// matched with them, because that takes the square of their number.
func (a *asked) full() bool { return len(a.list) > maxCalls }

// open begins a call.
func (a *asked) open(p *part) *part {
	if a.full() {
		return p
	}
	p.from, p.free = a.at, p.Hosted
	if !p.free {
		a.waiting++
	}
	a.list = append(a.list, p)
	a.think([]byte(p.Name))
	return p
}

// find is the last call at an index of the provider.
func (a *asked) find(at int) *part {
	for _, p := range slices.Backward(a.list) {
		if p.at == at {
			return p
		}
	}
	return nil
}

// close makes every call whole: the answer has ended.
func (a *asked) close() {
	for _, p := range a.list {
		p.Whole = true
	}
}

// whole says that no call is open.
func (a *asked) whole() bool {
	return !slices.ContainsFunc(a.list, func(p *part) bool { return !p.Whole })
}

func (a *asked) ready() (calls []Call) {
	if a.waiting == 0 {
		return nil
	}
	for _, p := range a.list {
		if p.Whole && !p.free {
			calls = append(calls, p.call())
		}
	}
	return calls
}

// release returns how much of what is held may go, and moves what stays.
func (a *asked) release(held int, all bool) int {
	n := held
	for _, p := range a.list {
		switch {
		case p.free:
		case p.Whole || all:
			p.free = true
			a.waiting--
		default:
			n = min(n, p.from)
		}
	}
	for _, p := range a.list {
		p.from -= n
	}
	return n
}

// piece is how much is counted together. The pieces are the same whenever they
// are counted, so that the sum is.
const piece = 1 << 10

// pieces counts what is there in whole pieces. A piece ends before a space, if
// there is one: there two tokens meet.
func (t *tally) pieces() int64 {
	from := 0
	for len(t.said)-from >= 2*piece {
		n := bytes.LastIndexByte(t.said[from+1:from+piece], ' ') + 1
		if n <= 0 {
			n = piece
		}
		t.tokens += int64(t.count.Said(string(t.said[from : from+n])))
		from += n
	}
	t.said = t.said[:copy(t.said, t.said[from:])]
	return t.tokens
}

// counted is how many tokens came.
func (t *tally) counted() int64 {
	return t.pieces() + int64(t.count.Said(string(t.said)))
}

func (a *asked) continued(choice, at int, id, name string) *part {
	for i := len(a.list) - 1; i >= 0; i-- {
		p := a.list[i]
		switch {
		case p.choice != choice, at >= 0 && p.at != at, id != "" && p.ID != "" && id != p.ID:
			continue
		case at < 0 && name != "" && (id == "" || p.ID == "" && p.Name != ""):
			return nil
		}
		return p
	}
	return nil
}
