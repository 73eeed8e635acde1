package mockprovider

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/kern-run/kern/internal/provider/tokens"
)

// openAI is the vendor OpenAI.
type openAI struct{}

func (openAI) overloaded() int { return http.StatusServiceUnavailable }

func (openAI) problem(p *problem, _ string) any {
	var code any
	kind, message := "invalid_request_error", p.message
	switch p.kind {
	case badKey:
		code = "invalid_api_key"
	case forbidden:
		kind, code = "access_terminated", "access_terminated"
	case noModel:
		code = "model_not_found"
	case notFound:
		code = "unknown_url"
	case tooLong:
		code = "context_length_exceeded"
	case rateLimited:
		kind, code = allTokens, "rate_limit_exceeded" // OpenAI has no other kinds
		if p.what == requests || p.what == concurrent {
			kind = requests
		}
		if p.never { // Anthropic does not say which
			message = "Request too large: " + message
		}
	case overloaded:
		kind, code = "server_error", "server_is_overloaded"
	}
	return object{"error": object{"message": message, "type": kind, "param": nil, "code": code}}
}

func (openAI) headers(h http.Header, id string, l levels, _ time.Time) {
	h.Set("X-Request-Id", id)
	h.Set("Openai-Version", "2020-10-01")
	if _, both := l[allTokens]; !both { // these headers have one limit on tokens
		if in, ok := l[inputTokens]; ok {
			l = levels{requests: l[requests], allTokens: in}
		}
	}
	for what, name := range map[string]string{requests: "Requests", allTokens: "Tokens"} {
		if v, ok := l[what]; ok && v.limit > 0 {
			h.Set("X-Ratelimit-Limit-"+name, fmt.Sprint(v.limit))
			h.Set("X-Ratelimit-Remaining-"+name, fmt.Sprint(v.left))
			h.Set("X-Ratelimit-Reset-"+name, v.reset.Round(time.Millisecond).String())
		}
	}
}

// embeddings is POST /v1/embeddings.
type embeddings struct{}

func (embeddings) vendor() vendor { return openAI{} }

// dimensions is the default size of a vector.
const dimensions = 1536

func (embeddings) parse(body []byte) (*request, *problem) {
	var r struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Format     string          `json:"encoding_format"`
		Dimensions int             `json:"dimensions"`
	}
	if p := decode(body, &r); p != nil {
		return nil, p
	}
	texts, counts, err := embedded(r.Input)
	switch {
	case r.Model == "":
		return nil, bad("the model is missing; expected a string in model")
	case err != nil || len(texts) == 0:
		return nil, bad("the input cannot be read; expected a string, strings, tokens, or lists of tokens in input")
	case r.Dimensions < 0 || r.Dimensions > 1<<14:
		return nil, bad("dimensions is %d, expected 1 to 16384", r.Dimensions)
	}
	size := cmp.Or(r.Dimensions, dimensions)
	q := &request{model: r.Model, choices: 1, texts: counts}
	q.vectors = func() []any {
		var all []any
		for i, t := range texts {
			v := vector(t, size)
			var shown any = v
			if r.Format == "base64" {
				b := make([]byte, 0, 4*size)
				for _, f := range v {
					b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
				}
				shown = base64.StdEncoding.EncodeToString(b)
			}
			all = append(all, object{"object": "embedding", "index": i, "embedding": shown})
		}
		return all
	}
	return q, nil
}

// embedded reads the four forms of input and counts the tokens of each text.
func embedded(raw json.RawMessage) (texts []string, counts []int, err error) {
	var one string
	var many []string
	var ids []int
	var lists [][]int
	raw = bytes.TrimSpace(raw)
	switch {
	case json.Unmarshal(raw, &one) == nil:
		texts = []string{one}
	case json.Unmarshal(raw, &many) == nil:
		texts = many
	case json.Unmarshal(raw, &ids) == nil:
		return []string{string(raw)}, []int{len(ids)}, nil
	default:
		if err = json.Unmarshal(raw, &lists); err != nil {
			return nil, nil, err
		}
		for _, l := range lists {
			texts, counts = append(texts, fmt.Sprint(l)), append(counts, len(l))
		}
		return texts, counts, nil
	}
	for _, t := range texts {
		counts = append(counts, tokens.CountText(t))
	}
	return texts, counts, nil
}

// vector returns a unit vector, always the same for the same text.
func vector(text string, size int) []float32 {
	r := rand.New(rand.NewChaCha8(sha256.Sum256([]byte(text))))
	v := make([]float32, size)
	var sum float64
	for i := range v {
		f := r.NormFloat64()
		v[i], sum = float32(f), sum+f*f
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

func (embeddings) body(a *answer) any {
	o := object{"object": "list", "model": a.req.model, "data": a.req.vectors()}
	if a.reported != nil {
		o["usage"] = object{"prompt_tokens": a.reported.Input, "total_tokens": a.reported.Input}
	}
	return o
}

func (embeddings) events(*stream, *answer) {}

// models is GET /v1/models, as the vendor of the client writes it.
func (m *Mock) models(w http.ResponseWriter, r *http.Request) {
	x := &handler{mock: m, w: w, r: r, vendor: vendorOf(r), begun: time.Now()}
	if keys := m.config.Keys; len(keys) > 0 && !slices.Contains(keys, keyOf(r)) {
		x.refuse(&problem{status: http.StatusUnauthorized, kind: badKey, message: "the key is missing or wrong; expected the one given with --key"})
		return
	}
	names := slices.Clone(m.config.Models)
	for name := range m.config.Scripts {
		names = append(names, name)
	}
	if slices.Sort(names); names == nil {
		names = []string{"mock"}
	}
	names = slices.Compact(names)
	var all []any
	one := r.PathValue("name")
	for _, n := range names {
		var o any = object{"id": n, "object": "model", "created": 1700000000, "owned_by": "mock"}
		if _, theirs := x.vendor.(anthropic); theirs {
			o = object{"id": n, "type": "model", "display_name": n, "created_at": "2025-01-01T00:00:00Z"}
		}
		if n == one {
			x.reply(o)
			return
		}
		all = append(all, o)
	}
	switch {
	case one != "":
		x.refuse(&problem{status: http.StatusNotFound, kind: noModel, message: fmt.Sprintf("the model %q does not exist", one)})
	default:
		x.reply(object{"object": "list", "data": all, "has_more": false, "first_id": names[0], "last_id": names[len(names)-1]})
	}
}

// reply sends an answer that costs nothing.
func (x *handler) reply(v any) {
	x.writeHeaders(http.StatusOK, false)
	if b, err := encode(v); err == nil {
		_, _ = x.w.Write(b) // a client that disconnected does not need it
	}
}
