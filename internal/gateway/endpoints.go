package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/internal/provider/format"
	"github.com/kern-run/kern/internal/provider/tariff"
)

// models lists the models that a request may name, in the format of the client.
// With a name in the path it describes that model.
func (g *Gateway) models(v *inbound) {
	f := v.format
	names := g.cfg.Models.Models(f.Vendor())
	list := []any{}
	for _, n := range names {
		if f == format.Messages {
			list = append(list, map[string]any{"type": "model", "id": n, "display_name": n, "created_at": "1970-01-01T00:00:00Z"})
		} else {
			list = append(list, map[string]any{"id": n, "object": "model", "created": 0, "owned_by": "kern"})
		}
	}
	switch i := slices.Index(names, v.rest); {
	case v.rest != "" && i < 0:
		v.fail(&abi.Error{Code: abi.UnknownModel, Message: "the configuration names no model " + abi.Clip(v.rest)})
	case v.rest != "":
		v.json(list[i])
	case f == format.Messages:
		v.json(map[string]any{"data": list, "has_more": false, "first_id": nil, "last_id": nil})
	default:
		v.json(map[string]any{"object": "list", "data": list})
	}
}

// counted answers with about how many input tokens a request has, and in a header with
// the bound, which is never less than the provider will bill. The gateway sends nothing
// to a provider.
func (g *Gateway) counted(v *inbound) {
	body, err := v.body()
	if err != nil {
		v.fail(err)
		return
	}
	q, err := format.Parse(v.format, body)
	if err != nil {
		v.fail(err)
		return
	}
	x, err := g.newUpstreamCall(v, q)
	if err != nil {
		v.fail(err)
		return
	}
	x.prepare(v.session.pid)
	v.w.Header().Set(boundHeader, strconv.FormatInt(provider.Input(&x.bound, &x.route().Facts), 10))
	answer := map[string]any{"input_tokens": tariff.Near(x.body.Billed())}
	if v.format == format.Responses {
		answer["object"] = "response.input_tokens"
	}
	v.json(answer)
}

// self answers with the usage of the process, the rest of its limits, and its end.
func (g *Gateway) self(v *inbound) {
	used, left := g.cfg.Kernel.Stands(v.session.pid)
	v.json(map[string]any{"pid": v.session.pid, "used": used, "left": left, "ending": g.cfg.Kernel.Ending(v.session.pid)})
}

// derive makes a key for a child of the key's process.
func (g *Gateway) derive(v *inbound) {
	body, err := v.body()
	if err != nil {
		v.fail(err)
		return
	}
	var k struct {
		Name     string     `json:"name"`
		Limits   abi.Limits `json:"limits"`
		Priority int        `json:"priority"`
	}
	if bad := jsontext.Check(body, jsontext.UniqueKeys); bad != nil {
		v.fail(&abi.Error{Code: abi.InvalidArguments, Message: "the body is not JSON: " + bad.Error(), Where: bad.Pointer})
		return
	}
	err = json.Unmarshal(body, &k)
	for key := range jsontext.Members(bytes.TrimSpace(body)) { // encoding/json ignores case, so it would accept "Limits"
		if name := string(key); !slices.Contains([]string{"name", "limits", "priority"}, name) {
			err = fmt.Errorf("there is %q", abi.Clip(name))
		}
	}
	if err != nil {
		v.fail(&abi.Error{Code: abi.InvalidArguments, Message: "expected an object with name, limits and priority: " + err.Error()})
		return
	}
	if k.Priority < 0 || k.Priority > abi.MaxPriority || len(k.Name) > 64 {
		v.fail(&abi.Error{Code: abi.InvalidArguments, Message: "expected a name of at most 64 bytes, and a priority from 0 to " + strconv.Itoa(abi.MaxPriority)})
		return
	}
	if err := enforceable(&k.Limits); err != nil {
		v.fail(err)
		return
	}
	i, err := g.Issue(v.r.Context(), Key{Name: k.Name, Limits: k.Limits, Priority: k.Priority, Parent: v.session.pid})
	if err != nil {
		v.fail(err)
		return
	}
	v.json(map[string]any{"pid": i.Pid, "key": i.Key, "openai_base_url": i.OpenAI, "anthropic_base_url": i.Anthropic})
}
