package format

import "github.com/kern-run/kern/internal/provider/tariff"

// Bound and Learned are the types of the tariff, which lists everything in a
// request that a provider may bill.
type (
	Bound   = tariff.Bound
	Learned = tariff.Learned
)

// formats maps each Format to the format bit of the tariff.
var formats = map[Format]tariff.Format{Chat: tariff.Chat, Responses: tariff.Responses, Embeddings: tariff.Embeddings, Messages: tariff.Messages}

// Billed returns the parts of r that can change a bill.
func (r *Request) Billed() *tariff.Request {
	q := &tariff.Request{Format: formats[r.Format], Model: r.Model, Choices: r.Choices, MaxOutput: r.MaxOutput, Count: r.Count, Learned: r.Learned, Free: r.Free}
	q.Fields = make([]tariff.Field, len(r.fields))
	for i, f := range r.fields {
		q.Fields[i] = tariff.Field{Name: f.name, Val: r.body[f.val.From:f.val.To]}
	}
	return q
}

// Bound returns the most that r can use.
func (r *Request) Bound() Bound { return tariff.Of(r.Billed()) }

// Unread reports whether a field of a body changes nothing that the model reads; see
// [tariff.Unread].
func (f Format) Unread(name string) bool { return tariff.Unread(formats[f], name) }
