package tariff

import (
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/tokens"
)

// Tokens that a request really costs in addition to its texts, as providers count
// them. [Of] uses higher numbers, because no provider promises these.
const (
	nearRequest = 3
	nearMessage = 4
	nearTools   = 340 // Anthropic's instructions about tools
)

// Near returns about how many input tokens the provider will count. It is exact for
// texts in a public vocabulary; [Of] returns a number that the count never passes.
func Near(r *Request) int64 {
	bound, plain := Of(r), *r
	plain.Learned = Learned{Kept: r.Learned.Kept}
	if bound.Input < Of(&plain).Input {
		return bound.Input // the provider counted most of it before
	}
	if plain.Count.Exact() {
		return min(bound.Input, near(&plain))
	}
	plain.Count = tokens.OpenAI("")
	return min(bound.Input, near(&plain)*r.Count.Percent()/100)
}

// near counts the texts of r, with the real overheads in place of the bounds.
func near(r *Request) int64 {
	w := weigher{r: r, b: Bound{Known: true}}
	n := int64(nearRequest)
	for _, f := range r.Fields {
		w.field("/"+jsontext.Pointer(f.Name), f.Val)
		switch f.Name {
		case "messages", "input", "system", "instructions":
			n -= PerMessage
			if jsontext.Kind(f.Val) != '[' || f.Name == "system" {
				n += nearMessage
			}
			for range jsontext.Elements(f.Val) {
				if n -= PerMessage; f.Name != "system" {
					n += nearMessage
				}
			}
		}
	}
	n += w.n - w.beside + w.pictures - perObject*w.objects
	if w.taught && r.Format == Messages {
		n += nearTools
	}
	return max(1, n)
}
