package gateway

import (
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kern-run/kern/abi"
)

// hop are the headers that are about one connection, and those that would speak
// of this gateway or change what is metered.
var hop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Http2-Settings": true, "Host": true, "Content-Length": true, "Content-Encoding": true,
	"Accept-Encoding": true, "Expect": true, "Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
	"X-Real-Ip": true, "Origin": true, "Referer": true, "Via": true, "Alt-Svc": true, "Strict-Transport-Security": true,
}

// isOwnHeader reports a header of this gateway.
func isOwnHeader(name string) bool { return strings.HasPrefix(name, headers) }

// secret are the headers that hold a credential of a program.
var secret = []string{"Authorization", "X-Api-Key", "Api-Key", "Cookie", "Set-Cookie"}

// travelling copies the headers that go on: not those of the connection, nor
// those that Connection names, nor our own.
func travelling(from http.Header) http.Header {
	to := make(http.Header, len(from))
	var named []string
	for _, v := range from["Connection"] {
		for n := range strings.SplitSeq(v, ",") {
			named = append(named, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(n)))
		}
	}
	for name, values := range from {
		if !hop[name] && !slices.Contains(named, name) && !isOwnHeader(name) {
			to[name] = values
		}
	}
	return to
}

// outbound are the headers of a request to a provider. No key of this gateway
// is among them, wherever it stood.
func outbound(from http.Header) http.Header {
	to := travelling(from)
	for name, values := range to {
		if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, keyPrefix) }) {
			delete(to, name)
		}
	}
	to.Set("Accept-Encoding", "identity")
	to.Set("Content-Type", "application/json")
	return to
}

// plain are the headers of a request that say what it asks, and what kind of
// program does. Any other may say whose account is to pay, or where the request
// is to go on to, together with the key: of organizations, projects and
// subscriptions, of the gateways that stand before providers, and those that
// nobody here knows. A list of these is never whole.
var plain = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Content-Type": true, "User-Agent": true, "Idempotency-Key": true,
	"X-Request-Id": true, "X-Client-Request-Id": true, "Traceparent": true, "Tracestate": true,
	"Openai-Beta": true, "Anthropic-Beta": true, "Anthropic-Version": true, "Anthropic-Dangerous-Direct-Browser-Access": true,
	"X-App": true, "Originator": true, "Version": true, "Session_id": true, "Conversation_id": true,
}

const sdkHeaders = "X-Stainless-" // what the official libraries say of themselves

// credential says whether a request brings one of its own.
func credential(h http.Header) bool {
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		if v := h.Get(name); v != "" && !strings.Contains(v, keyPrefix) {
			return true
		}
	}
	return false
}

// anonymous removes the headers that identify the program, or that only the
// paying account may set.
func anonymous(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return !plain[name] && !strings.HasPrefix(name, sdkHeaders) })
}

// conceal takes credentials of the program out of words that are written down.
func conceal(s string, h http.Header) string {
	for _, name := range secret {
		for _, v := range h[name] {
			if _, after, ok := strings.Cut(v, " "); ok {
				v = after
			}
			if len(v) >= 8 {
				s = strings.ReplaceAll(s, v, "[key]")
			}
		}
	}
	return s
}

// query is what is sent on of a query: nothing of one with a key of this
// gateway in it.
func query(raw string) string {
	plain, err := url.PathUnescape(raw)
	if raw == "" || err != nil || strings.Contains(plain, keyPrefix) {
		return ""
	}
	return "?" + raw
}

// impersonal is the part of a query that any provider may see: which features and
// which version it wants.
func impersonal(query string) string {
	all, err := url.ParseQuery(strings.TrimPrefix(query, "?"))
	if err != nil {
		return ""
	}
	maps.DeleteFunc(all, func(name string, _ []string) bool { return name != "beta" && name != "api-version" })
	if len(all) == 0 {
		return ""
	}
	return "?" + all.Encode()
}

// accounts are the headers in which a provider says whose account it was.
var accounts = []string{"Openai-Organization", "Openai-Project", "Anthropic-Organization-Id"}

// copyShown copies the headers of an answer that a program may see.
func copyShown(to, from http.Header, own bool) {
	for name, values := range travelling(from) {
		if !slices.Contains(secret, name) && (own || !slices.Contains(accounts, name)) {
			to[name] = values
		}
	}
}

func setStanding(k State, pid abi.Pid, h http.Header) {
	used, left := k.Stands(pid)
	h.Set(pidHeader, strconv.FormatInt(int64(pid), 10))
	h.Set(spentHeader, units(usedUnits, func(u abi.Unit) (int64, bool) { return used[u], u == abi.Money || used[u] != 0 }))
	if l := units(abi.Units, left.Get); l != "" {
		h.Set(leftHeader, l)
	}
}

// usedUnits are the units of usage that a program sees: money and tokens.
const usedUnits = abi.OutputTokens + 1

// units writes amounts as money=0.25,steps=3.
func units(below abi.Unit, get func(abi.Unit) (int64, bool)) string {
	var b []byte
	for u := range below {
		if n, ok := get(u); ok {
			if len(b) > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, u.String()...), '='), abi.FormatUnit(u, n)...)
		}
	}
	return string(b)
}
