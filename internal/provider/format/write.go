package format

import (
	"bytes"
	"encoding/json"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/model"
)

// WriteRequest encodes r in format f for the model called name. The request asks for
// a stream with its usage. It has no output maximum; [Request.Bytes] sets it.
// [ToolNames] decides how the tools are named. Only Chat and Messages can be written.
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
	// [Parse] is too strict here: arguments that a model wrote may have a key twice.
	// The provider accepted them before, so refusing them would only end the conversation.
	for _, step := range []func() *abi.Error{q.readHead, q.readConversation} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// encodeJSON returns v as JSON without HTML escapes, because those cost tokens.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// anyObject is the schema for a tool that declares no schema.
var anyObject = json.RawMessage(`{"type":"object","properties":{}}`)

// schemaOf returns the schema of a tool, or anyObject.
func schemaOf(t *model.ToolSpec) json.RawMessage {
	if len(t.Schema) == 0 {
		return anyObject
	}
	return t.Schema
}
