package abi

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// dataJSON is how a payload is written for people and programs: JSON as JSON,
// text as text, and only what is neither in base64. It reads back to the byte.
type dataJSON struct {
	JSON  json.RawMessage `json:"json,omitempty"`
	Text  *string         `json:"text,omitempty"`
	Bytes string          `json:"bytes,omitempty"` // base64
	Hash  Hash            `json:"hash,omitzero"`
	Size  int64           `json:"size,omitempty"`
}

// MarshalJSON writes d so that a person can read it.
func (d Data) MarshalJSON() ([]byte, error) {
	j := dataJSON{Hash: d.Hash, Size: d.Size}
	switch {
	case len(d.Bytes) == 0:
	case plainJSON(d.Bytes):
		j.JSON = d.Bytes
	case utf8.Valid(d.Bytes):
		s := string(d.Bytes)
		j.Text = &s
	default:
		j.Bytes = base64.StdEncoding.EncodeToString(d.Bytes)
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *Data) UnmarshalJSON(b []byte) (err error) {
	var j dataJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*d = Data{Hash: j.Hash, Size: j.Size}
	switch {
	case j.JSON != nil:
		d.Bytes = j.JSON
	case j.Text != nil:
		d.Bytes = []byte(*j.Text)
	case j.Bytes != "":
		d.Bytes, err = base64.StdEncoding.DecodeString(j.Bytes)
	}
	return err
}

// plainJSON reports whether b is an object or a list that encoding/json writes
// again as it stands.
func plainJSON(b []byte) bool {
	if b[0] != '{' && b[0] != '[' || bytes.ContainsAny(b, "<>&\u2028\u2029") || !utf8.Valid(b) {
		return false
	}
	var c bytes.Buffer
	return json.Compact(&c, b) == nil && bytes.Equal(c.Bytes(), b)
}

// MarshalText implements encoding.TextMarshaler.
func (k Key) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, k[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Key) UnmarshalText(b []byte) error {
	if len(b) != 2*len(k) {
		return fmt.Errorf("key: %d characters, want %d", len(b), 2*len(k))
	}
	_, err := hex.Decode(k[:], b)
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, name := range kindNames {
		if name != "" && name == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("kind: %q is not the kind of a record", b)
}
