package provider

import (
	"github.com/kern-run/kern/model"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestStatusIsClassified(t *testing.T) {
	const openai, anthropic = "openai:gpt-5", "anthropic:claude-sonnet-4-5"
	for _, c := range []struct {
		ref    string
		status int
		body   string
		want   model.Kind
		says   string
	}{
		{openai, 401, `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`, model.Auth, "Incorrect API key"},
		{openai, 403, `{"error":{"message":"Country not supported"}}`, model.Auth, "Country"},
		{openai, 402, `{}`, model.Auth, ""},
		{openai, 429, `{"error":{"message":"Rate limit reached for gpt-5","type":"tokens","code":"rate_limit_exceeded"}}`, model.RateLimit, "Rate limit reached"},
		{openai, 429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, model.Auth, "quota"},
		{openai, 429, `{"error":{"message":"Request too large for gpt-5 on tokens per min","code":"rate_limit_exceeded"}}`, model.BadRequest, "too large"},
		{openai, 400, `{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}`, model.Context, "8192"},
		{openai, 400, `{"error":{"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`, model.Context, "available"},
		{openai, 400, `{"error":{"message":"Unknown parameter: 'x'","type":"invalid_request_error"}}`, model.BadRequest, "Unknown parameter"},
		{openai, 422, `{"detail":[{"loc":["body"],"msg":"bad"}]}`, model.BadRequest, "bad"},
		{openai, 404, `{"error":{"message":"The model does not exist","code":"model_not_found"}}`, model.BadRequest, "does not exist"},
		{openai, 404, `<html>nothing here</html>`, model.BadRequest, "nothing here"},
		{openai, 413, ``, model.Context, ""},
		{openai, 408, ``, model.Network, ""},
		{openai, 500, `{"error":"boom"}`, model.Overloaded, "boom"},
		{openai, 501, ``, model.BadRequest, ""},
		{openai, 502, `<html>bad gateway</html>`, model.Overloaded, "bad gateway"},
		{openai, 503, `{"message":"loading model"}`, model.Overloaded, "loading model"},
		{openai, 307, ``, model.BadRequest, "redirect"},
		{anthropic, 401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, model.Auth, "invalid"},
		{anthropic, 403, `{"type":"error","error":{"type":"permission_error","message":"no"}}`, model.Auth, "no"},
		{anthropic, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`, model.Context, "208310"},
		{anthropic, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}`, model.Auth, "credit"},
		{anthropic, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"messages: roles must alternate"}}`, model.BadRequest, "alternate"},
		{anthropic, 404, `{"type":"error","error":{"type":"not_found_error","message":"model: x"}}`, model.BadRequest, "model: x"},
		{anthropic, 413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds"}}`, model.Context, "exceeds"},
		{anthropic, 429, `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`, model.RateLimit, "slow down"},
		{anthropic, 500, `{"type":"error","error":{"type":"api_error","message":"Internal"}}`, model.Overloaded, "Internal"},
		{anthropic, 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.Overloaded, "Overloaded"},
	} {
		o := run(t, over(t, c.ref, &tape{status: c.status, pieces: []string{c.body}}), hello)
		if o.Err == nil || o.Err.Kind != c.want || o.Err.Status != c.status || !strings.Contains(o.Err.Message, c.says) {
			t.Errorf("%s %d %s: got %v, want %s with %q", c.ref, c.status, c.body, o.Err, c.want, c.says)
			continue
		}
		if o.Err.Usage == nil || *o.Err.Usage != (model.Usage{}) {
			t.Errorf("%d: a refused request was billed: %+v", c.status, o.Err.Usage)
		}
		retry := c.want == model.RateLimit || c.want == model.Overloaded || c.want == model.Network
		if o.Err.Retryable() != retry {
			t.Errorf("%d %s: retryable is %v", c.status, c.want, !retry)
		}
	}
}

func TestErrorWithinStreamIsClassified(t *testing.T) {
	for body, want := range map[string]model.Kind{
		`{"error":{"type":"overloaded_error","message":"x"}}`:         model.Overloaded,
		`{"error":{"type":"rate_limit_error","message":"x"}}`:         model.RateLimit,
		`{"error":{"type":"authentication_error","message":"x"}}`:     model.Auth,
		`{"error":{"type":"invalid_request_error","message":"x"}}`:    model.BadRequest,
		`{"error":{"type":"request_too_large","message":"x"}}`:        model.Context,
		`{"error":{"type":"timeout_error","message":"x"}}`:            model.Network,
		`{"error":{"type":"x","message":"maximum context length"}}`:   model.Context,
		`{"error":{"code":"insufficient_quota","message":"x"}}`:       model.Auth,
		`{"error":{"code":429,"message":"from the provider behind"}}`: model.RateLimit,
		`{"error":{"code":502,"message":"from the provider behind"}}`: model.Overloaded,
		`{"error":"rate limit hit","code":429}`:                       model.RateLimit,
		`{"error":{}}`:                                                model.Overloaded,
		`{"error":[1,"x"]}`:                                           model.Overloaded,
	} {
		o := run(t, over(t, "openai:gpt-5", &tape{pieces: []string{"data: " + body + "\n\n"}}), hello)
		if o.Err == nil || o.Err.Kind != want {
			t.Errorf("%s: got %v, want %s", body, o.Err, want)
		}
	}
}

// TestRetryAfterComesAlong: a refusal says how long the provider asks to wait.
func TestRetryAfterComesAlong(t *testing.T) {
	m := over(t, "openai:gpt-5", &tape{status: 429, header: http.Header{"Retry-After": {"3"}}})
	if o := run(t, m, hello); o.Err.RetryAfter != 3*time.Second {
		t.Errorf("the error says %v, want 3s", o.Err.RetryAfter)
	}
}
