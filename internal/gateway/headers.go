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

// hop lists the headers that the gateway does not pass on. They belong to one
// connection, reveal the gateway, or change the bytes that the meter reads.
var hop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Http2-Settings": true, "Host": true, "Content-Length": true, "Content-Encoding": true,
	"Accept-Encoding": true, "Expect": true, "Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
	"X-Real-Ip": true, "Origin": true, "Referer": true, "Via": true, "Alt-Svc": true, "Strict-Transport-Security": true,
}

// isOwnHeader reports whether name is a header of the gateway itself.
func isOwnHeader(name string) bool { return strings.HasPrefix(name, headers) }

// secret lists the headers that may hold a credential.
var secret = []string{"Authorization", "X-Api-Key", "Api-Key", "Cookie", "Set-Cookie"}

// travelling returns the headers that the gateway may pass on. It omits the headers in
// hop, the headers that Connection names, and the gateway's own.
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

// outbound returns the headers of a request to a provider. It omits every header whose
// value contains a key of the gateway.
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

// plain lists the headers that describe a request and the kind of its program. Only
// these go out with the daemon's key. Any other header may choose the paying account,
// or the server that gets the request together with the key. Examples are headers
// for organizations, projects, subscriptions and proxies of providers. plain lists what
// may pass, because a list of the dangerous headers would never be complete.
var plain = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Content-Type": true, "User-Agent": true, "Idempotency-Key": true,
	"X-Request-Id": true, "X-Client-Request-Id": true, "Traceparent": true, "Tracestate": true,
	"Openai-Beta": true, "Anthropic-Beta": true, "Anthropic-Version": true, "Anthropic-Dangerous-Direct-Browser-Access": true,
	"X-App": true, "Originator": true, "Version": true, "Session_id": true, "Conversation_id": true,
}

const sdkHeaders = "X-Stainless-" // begins the headers in which the official libraries describe themselves

// credential reports whether a request carries a credential of its own, which is not a
// key of the gateway.
func credential(h http.Header) bool {
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		if v := h.Get(name); v != "" && !strings.Contains(v, keyPrefix) {
			return true
		}
	}
	return false
}

// anonymous removes every header that is not plain: headers that identify the program,
// and headers that only the paying account may set.
func anonymous(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return !plain[name] && !strings.HasPrefix(name, sdkHeaders) })
}

// conceal replaces the credentials in h by [key] in s, because s is recorded.
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

// query returns the query to send on, with its question mark. It is empty if raw
// contains a key of the gateway.
func query(raw string) string {
	plain, err := url.PathUnescape(raw)
	if raw == "" || err != nil || strings.Contains(plain, keyPrefix) {
		return ""
	}
	return "?" + raw
}

// impersonal returns the part of a query that any provider may see: the features and
// the version of the interface.
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

// accounts lists the headers in which a provider names the paying account.
var accounts = []string{"Openai-Organization", "Openai-Project", "Anthropic-Organization-Id"}

// copyShown copies the headers of an answer that a program may see. own reports that
// the program's own account paid, so the program may see its name.
func copyShown(to, from http.Header, own bool) {
	for name, values := range travelling(from) {
		if !slices.Contains(secret, name) && (own || !slices.Contains(accounts, name)) {
			to[name] = values
		}
	}
}

// setStanding puts the usage of a process and the rest of its limits into h.
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

// units formats amounts like money=0.25,steps=3.
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
