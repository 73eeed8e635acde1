// Package jsontext reads JSON in place. It returns parts of the text it was
// given and copies nothing, so a caller can change one part and keep the rest
// byte for byte.
//
// [Check] decides whether a text is JSON. Every other function reads only text
// that Check accepted, and may panic on any other text.
//
//   - check.go: Check, its rules and its error
//   - read.go: members, elements and simple values
//   - canonical.go: the one form of a value, for comparing two texts
//   - decimal.go: numbers with all their digits
package jsontext

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Bounds of the texts that [Check] accepts.
const (
	MaxDepth  = 256      // nested arrays and objects
	MaxKeys   = 1 << 20  // members of one object, where keys are compared
	MaxSize   = 16 << 20 // bytes, under Strict
	MaxNumber = 1000     // characters of a number and its largest exponent, under Strict
)

// Quote writes s as a JSON string. It does not escape the characters of HTML.
func Quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes, and a Buffer always writes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Pointer writes a member name as one step of a JSON pointer. It cuts a long
// name.
func Pointer(name string) string {
	return escapeStep(Clip(name))
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func escapeStep(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return pointerEscapes.Replace(name)
}

// Clip shortens a value from outside for use in an error.
func Clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
