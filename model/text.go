package model

import (
	"encoding/json"
	"strings"
)

// appendString quotes s as JSON without the escapes that are meant for HTML.
func appendString(b []byte, s string) []byte {
	var w strings.Builder
	enc := json.NewEncoder(&w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes, and a Builder always writes
	return append(b, strings.TrimSuffix(w.String(), "\n")...)
}

// clip keeps a quoted value in an error short.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
