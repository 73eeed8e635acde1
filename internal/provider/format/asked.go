package format

import (
	"bytes"
	"slices"
	"strings"

	"github.com/kern-run/kern/internal/provider/tariff"
	"github.com/kern-run/kern/internal/provider/tokens"
	"github.com/kern-run/kern/model"
)

// answer collects an answer from its events. The readers in answer.go fill it, and
// [Meter.Seen] shows it.
type answer struct {
	bill
	asked
	id, model string
	stop      model.Stop
	ends      []int // the indices of the finished choices
	crowded   bool  // the answer has more choices than a request can ask for
	done      bool
	idle      bool // the current event holds only the usage
	events    int
	sequence  int64
	malformed string
	failure   *model.Error
	of        *tariff.Request // set if a later request can refer to stored items of this answer
	kept      []Kept
}

// bill is the usage as the provider reported it.
type bill struct {
	usage              model.Usage
	hasInput, reported bool
	covers             int // the size of the answer when the provider reported the output
	thought, hour      int64
	searches           int64
	tier               string
}

// told reports whether the reported output covers everything that arrived. It
// compares sizes, because some servers first report only the input, or repeat an
// old count.
func (a *answer) told() bool {
	return a.reported && a.covers == a.size && (a.usage.Output > 0 || a.size == 0)
}

// tally collects the text of an answer and counts its tokens.
type tally struct {
	count  tokens.Counter
	onText func(piece string) // may be nil
	text   strings.Builder
	said   []byte // text, thoughts and tool arguments that are not counted yet
	tokens int64  // the tokens counted so far
	size   int    // the bytes of text, thoughts and tool arguments, counted or not
}

// asked holds the tool calls of an answer, in the order they began.
type asked struct {
	tally
	list    []*part
	waiting int // how many calls are not released
	at      int // how many bytes were held before this event
}

// part is a tool call that arrives in pieces.
type part struct {
	Call
	choice, at int // the indices that the provider uses
	args       strings.Builder
	from       int  // where its bytes begin in the held bytes
	free       bool // the call was released
}

// call returns the call with the arguments that arrived.
func (p *part) call() Call {
	c := p.Call
	c.Args = p.args.String()
	if c.Args == "" && p.Whole {
		c.Args = "{}" // the formats write a call without arguments like this
	}
	return c
}

// say adds s to the text of the answer.
func (t *tally) say(s []byte) {
	t.text.Write(s)
	if t.onText != nil && len(s) > 0 {
		t.onText(string(s))
	}
	t.think(s)
}

// think adds s to the token count but not to the text.
func (t *tally) think(s []byte) {
	t.size += len(s)
	t.said = append(t.said, s...)
}

// add appends a piece of arguments to a call.
func (a *asked) add(p *part, args string) {
	p.args.WriteString(args)
	a.think([]byte(args))
}

// full reports whether the answer has more calls than allowed. Readers then stop
// matching pieces with calls, because matching takes quadratic time.
func (a *asked) full() bool { return len(a.list) > maxCalls }

// open adds a new call to the list. A call of a hosted tool is released at once,
// because the provider runs it.
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

// find returns the last call at a provider's index, or nil.
func (a *asked) find(at int) *part {
	for _, p := range slices.Backward(a.list) {
		if p.at == at {
			return p
		}
	}
	return nil
}

// close marks every call as complete, because the answer has ended.
func (a *asked) close() {
	for _, p := range a.list {
		p.Whole = true
	}
}

// whole reports whether every call is complete.
func (a *asked) whole() bool {
	return !slices.ContainsFunc(a.list, func(p *part) bool { return !p.Whole })
}

// ready returns the complete calls that are not released.
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

// release releases the complete calls, or every call if all is set. It returns how
// many of the held bytes may go to the client, and moves the positions of the rest.
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

// piece is how many bytes are counted together. The cuts do not depend on when
// counting happens, so the sum does not either.
const piece = 1 << 10

// pieces counts the whole pieces and returns the tokens counted so far. A piece
// ends before a space if it has one, because tokens meet there.
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

// counted returns the tokens of everything that arrived.
func (t *tally) counted() int64 {
	return t.pieces() + int64(t.count.Said(string(t.said)))
}

// continued returns the call that a piece continues, or nil if the piece begins a
// new call. It compares the choice, then the index, then the id; at is -1 without
// an index. A piece without an index begins a new call if it has a name and no
// matching id.
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
