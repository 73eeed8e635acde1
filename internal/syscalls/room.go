package syscalls

import (
	"fmt"
	"slices"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
)

// lastWordsPrompt is the most input tokens that asking for last words adds to a request.
const lastWordsPrompt = 160

// A contextRoom is the tokens that one request may have, and those of them that are kept for
// last words.
type contextRoom struct{ bound, kept int64 }

// roomOf returns the tightest bound on the request of pl. A bound so small that the room
// would be more than a fifth of it keeps no room.
func roomOf(v *kernel.View, pl *kernel.Plan) (r contextRoom, ok bool) {
	if v.Context > 0 {
		r = contextRoom{v.Context, lastWordsPrompt}
	}
	// A window holds the answer too, a limit on context does not.
	if w := (contextRoom{pl.Window, lastWordsPrompt + lastWordsOutput}); w.bound > 0 && (r.bound == 0 || w.bound-w.kept < r.bound-r.kept) {
		r = w
	}
	return r, r.bound > 0 && r.kept*5 <= r.bound
}

// keepRoom keeps room for last words in the context of the process. pl is the plan of a.
//
// From 80 % on the request tells the model once how much room there is. A request that
// would leave no room for last words is refused, so that the run ends with them. Last
// words that do not fit any more leave out the results that the model has not read.
func (w *World) keepRoom(v *kernel.View, a ModelArgs, pl kernel.Plan, away func(string) time.Duration) (kernel.Plan, *abi.Error) {
	if _, ok := process.FitsContext(pl.Context, pl.Elastic.Min, v.Context, v.Context > 0, pl.Window); !ok {
		if a.Last {
			return w.planRequest(v, a, true, away)
		}
		return pl, nil // the kernel refuses it, and says by how much it is too long
	}
	r, ok := roomOf(v, &pl)
	// The first request may take all, because there is nothing to conclude before an answer.
	if !ok || a.Last || !slices.ContainsFunc(v.Pages, func(pg process.Page) bool { return pg.Role == process.RoleAssistant }) {
		return pl, nil
	}
	if pl.Context+r.kept > r.bound {
		return pl, &abi.Error{Code: abi.LimitContext,
			Message: fmt.Sprintf("the request takes %d of %d tokens, and the last %d are kept for last words", pl.Context, r.bound, r.kept),
			Hint:    "start a new process with a shorter task, or raise the context limit"}
	}
	if a.Say != "" || pl.Context < r.bound-r.bound/5 {
		return pl, nil
	}
	a.Say = fmt.Sprintf("Your context is nearly full: more than 80 %% of its %d tokens are used. "+
		"Prefer short results, and come to an answer before it is full.", r.bound)
	told, err := w.said(v.Pages, a.Say)
	if err != nil {
		return pl, &abi.Error{Code: abi.StorageBroken, Message: err.Error()}
	}
	if told {
		return pl, nil
	}
	return w.planRequest(v, a, false, away)
}

// said reports whether a user message among the pages is text.
func (w *World) said(pages []process.Page, text string) (bool, error) {
	for _, pg := range slices.Backward(pages) {
		if pg.Role != process.RoleUser {
			continue
		}
		if m, err := w.Journal.Message(pg); err != nil || m.Text == text {
			return err == nil, err
		}
	}
	return false, nil
}
