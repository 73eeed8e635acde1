package format

import (
	"bytes"
	"encoding/json"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/model"
)

// WriteRequest writes r for a model in a format, as a stream with its usage. It
// sets no output maximum; [Request.Bytes] does. Names of tools are written as
// [ToolNames] says.
func WriteRequest(f Format, name string, r model.Request) (*Request, error) {
	r = NamesOf(r.Tools).outward(r)
	var body any
	switch f {
	case Chat:
		body = writeChat(name, r)
	case Messages:
		body = writeMessages(name, r)
	default:
		return nil, invalid("", "the format %s cannot be written", f)
	}
	b, err := encodeJSON(body)
	if err != nil {
		return nil, err
	}
	q := newRequest(f, b, 0)
	// Arguments that a model wrote may have a key twice. The provider has seen them
	// before, so the strictness of [Parse] would only end the conversation.
	for _, step := range []func() *abi.Error{q.readHead, q.readConversation} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// encodeJSON writes v without the escapes that are meant for HTML, because they
// cost tokens.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// anyObject is the schema of a tool that declares none.
var anyObject = json.RawMessage(`{"type":"object","properties":{}}`)

func schemaOf(t *model.ToolSpec) json.RawMessage {
	if len(t.Schema) == 0 {
		return anyObject
	}
	return t.Schema
}
