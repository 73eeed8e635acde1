package format

import "github.com/kern-run/kern/internal/provider/tariff"

// The tariff says what a request may be billed for.
type (
	Bound   = tariff.Bound
	Learned = tariff.Learned
)

// formats are the formats as the tariff knows them.
var formats = map[Format]tariff.Format{Chat: tariff.Chat, Responses: tariff.Responses, Embeddings: tariff.Embeddings, Messages: tariff.Messages}

// billed is r as far as a bill depends on it.
func (r *Request) billed() *tariff.Request {
	q := &tariff.Request{Format: formats[r.Format], Model: r.Model, Choices: r.Choices, MaxOutput: r.MaxOutput, Count: r.Count, Learned: r.Learned, Free: r.Free}
	q.Fields = make([]tariff.Field, len(r.fields))
	for i, f := range r.fields {
		q.Fields[i] = tariff.Field{Name: f.name, Val: r.body[f.val.From:f.val.To]}
	}
	return q
}

// Bound says what r may take at most.
func (r *Request) Bound() Bound { return tariff.Of(r.billed()) }

// Steady says that what r takes now it takes the next time too.
func (r *Request) Steady() bool { return r.billed().Steady() }
