package format

import (
	"slices"
	"strings"

	"github.com/kern-run/kern/internal/jsontext"
	"github.com/kern-run/kern/internal/provider/tariff"
	"github.com/kern-run/kern/model"
)

// maxNumber is the largest number that is read from an answer; a larger number is
// read as this one. It is small enough that a sum of a few cannot overflow.
const maxNumber = 1 << 40

// number returns the whole number v. It returns 0 if v is negative or no whole number.
func number(v []byte) int64 {
	n, _ := jsontext.Whole(v)
	return min(max(n, 0), maxNumber)
}

// failed records an error that the provider sent instead of an answer, or within an
// answer.
func (a *answer) failed(data []byte) {
	a.failure = Classify(data)
}

// chat reads an event of a Chat stream, or a whole Chat answer. In a whole answer
// the choices have a message instead of a delta.
func (a *answer) chat(data []byte) {
	var usage []byte
	choices := 0
	for k, v := range jsontext.Members(data) {
		switch string(k) {
		case "id":
			a.name(&a.id, v)
		case "model":
			a.name(&a.model, v)
		case "choices":
			for _, c := range jsontext.Elements(v) {
				if choices++; choices > maxChoices {
					a.crowded = true
					break
				}
				a.choice(c)
			}
		case "usage":
			if jsontext.Kind(v) == '{' {
				usage = v
			}
		case "service_tier":
			a.name(&a.tier, v)
		case "error":
			if jsontext.Kind(v) != 'n' {
				a.failed(data)
			}
		}
	}
	if usage != nil {
		a.chatUsage(usage)
		a.idle = choices == 0 && a.failure == nil
	}
}

// name stores the first value of a text that every event repeats.
func (a *answer) name(to *string, v []byte) {
	if *to == "" && len(v) < 1<<10 {
		*to = jsontext.String(v)
	}
}

// choice reads one choice of a Chat event or answer.
func (a *answer) choice(c []byte) {
	at := 0
	var finish []byte
	var delta, message []byte
	for k, v := range jsontext.Members(c) {
		switch string(k) {
		case "index":
			at = int(number(v))
		case "delta":
			delta = v
		case "message":
			message = v
		case "finish_reason":
			finish = jsontext.Bare(v)
		}
	}
	a.delta(at, delta)
	a.delta(at, message)
	if len(finish) == 0 {
		return
	}
	// A finish reason completes every call of its choice.
	for _, p := range a.list {
		p.Whole = p.Whole || p.choice == at
	}
	a.end(at)
	// The first choice decides the stop reason, except that a refusal and a cut stay.
	stop := chatStop(string(finish))
	kept := a.stop == model.StopFilter || a.stop == model.StopLength
	if a.stop == "" || !kept && (at == 0 || stop == model.StopLength) {
		a.stop = stop
	}
}

// end records that a choice is finished. It ignores repeats, because some servers
// report the end of a choice more than once.
func (a *answer) end(choice int) {
	if len(a.ends) <= maxChoices && !slices.Contains(a.ends, choice) {
		a.ends = append(a.ends, choice)
	}
}

// chatStop returns the stop reason for a finish_reason of Chat.
func chatStop(s string) model.Stop {
	switch s {
	case "length", "max_tokens":
		return model.StopLength
	case "content_filter":
		return model.StopFilter
	case "tool_calls", "function_call":
		return model.StopTools
	}
	return model.StopEnd
}

// delta reads the text, thoughts and calls of one choice. The text of the answer is
// the text of choice 0; the text of the other choices is only counted.
func (a *answer) delta(choice int, d []byte) {
	for k, v := range jsontext.Members(d) {
		switch string(k) {
		case "content", "refusal":
			s := bare(v)
			if choice == 0 {
				a.say(s)
			} else {
				a.think(s)
			}
			if len(s) > 0 && k[0] == 'r' {
				a.stop = model.StopFilter
			}
		case "reasoning_content", "reasoning":
			a.think(bare(v))
		case "tool_calls":
			for n, t := range jsontext.Elements(v) {
				a.chatPart(choice, n, t)
			}
		case "function_call":
			if jsontext.Kind(v) == '{' {
				a.oldPart(choice, v)
			}
		}
	}
}

// chatPart reads a piece of a Chat tool call. The index says to which call the piece
// belongs. Some servers give every call the same index or no index. There a new id
// or a name begins a new call.
func (a *answer) chatPart(choice, n int, t []byte) {
	if a.full() {
		return
	}
	at, id, name, args := -1, "", "", ""
	for k, v := range jsontext.Members(t) {
		switch string(k) {
		case "index":
			if jsontext.Kind(v) == '0' {
				at = int(number(v))
			}
		case "id":
			id = jsontext.String(v)
		case "function", "custom":
			for k, v := range jsontext.Members(v) {
				switch string(k) {
				case "name":
					name = jsontext.String(v)
				case "arguments", "input":
					args = loose(v)
				}
			}
		}
	}
	// A piece that continues no call opens a call, at the next free index if it has none.
	p := a.continued(choice, at, id, name)
	if p == nil {
		if at < 0 {
			at = len(a.list)
		}
		p = a.open(&part{Call: Call{ID: id, Name: name}, choice: choice, at: at})
	}
	if p.ID == "" {
		p.ID = id
	}
	if p.Name == "" {
		p.Name = name
	}
	a.add(p, args)
}

// oldPart reads a piece of the deprecated function_call field. A choice has at most
// one such call.
func (a *answer) oldPart(choice int, f []byte) {
	name, args := jsontext.String(jsontext.Get(f, "name")), loose(jsontext.Get(f, "arguments"))
	for _, p := range a.list {
		if p.choice == choice && p.at < 0 {
			a.add(p, args)
			return
		}
	}
	a.add(a.open(&part{Call: Call{ID: oldID(name), Name: name}, choice: choice, at: -1}), args)
}

// chatUsage reads the usage of a Chat answer. Some servers leave thoughts out of
// completion_tokens but not out of the total, so it uses the larger amount.
func (a *answer) chatUsage(u []byte) {
	var in, out, total int64
	var details []byte
	for k, v := range jsontext.Members(u) {
		switch string(k) {
		case "prompt_tokens":
			in, a.hasInput = number(v), true
		case "completion_tokens":
			out = number(v)
		case "total_tokens":
			total = number(v)
		case "prompt_tokens_details":
			details = v
		case "completion_tokens_details":
			a.thought = number(jsontext.Get(v, "reasoning_tokens"))
		}
	}
	a.split(in, max(out, total-in), details)
}

// response reads an event of a Responses stream, or a whole Responses answer.
func (a *answer) response(data []byte) {
	var kind, delta, args, item, response []byte
	at := 0
	for k, v := range jsontext.Members(data) {
		switch string(k) {
		case "type":
			kind = jsontext.Bare(v)
		case "delta":
			delta = jsontext.Bare(v)
		case "arguments", "input":
			args = jsontext.Bare(v)
		case "item":
			item = v
		case "response":
			response = v
		case "output_index":
			at = int(number(v))
		case "sequence_number":
			a.sequence = number(v)
		}
	}
	switch string(kind) {
	case "response.output_text.delta":
		a.say(delta)
	case "response.refusal.delta":
		a.say(delta)
		a.stop = model.StopFilter
	case "response.reasoning_text.delta", "response.reasoning_summary_text.delta", "response.code_interpreter_call_code.delta":
		a.think(delta)
	case "response.output_item.added":
		a.item(at, item, false)
	case "response.output_item.done":
		a.item(at, item, true)
	// The arguments belong to the call that output_item.added opened at this index.
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		if p := a.find(at); p != nil {
			a.add(p, string(delta))
		}
	case "response.function_call_arguments.done", "response.custom_tool_call_input.done":
		if p := a.find(at); p != nil {
			a.finish(p, string(args))
		}
	case "response.created", "response.in_progress", "response.queued":
		a.name(&a.id, jsontext.Get(response, "id"))
		a.name(&a.model, jsontext.Get(response, "model"))
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		a.ended(response)
	case "error": // the event has the error fields at its top, so wrap them as in an error body
		a.failed(append(append([]byte(`{"error":`), data...), '}'))
	case "": // not an event: a whole answer or an error body
		if jsontext.Kind(jsontext.Get(data, "object")) == '"' || jsontext.Get(data, "output") != nil {
			a.ended(data)
		} else if jsontext.Kind(jsontext.Get(data, "error")) != 'n' {
			a.failed(data)
		}
	}
}

// finish marks a call as complete. The final arguments replace the collected pieces
// if the two differ.
func (a *answer) finish(p *part, args string) {
	if args != "" && p.args.String() != args {
		a.size -= p.args.Len()
		p.args.Reset()
		a.add(p, args)
	}
	p.Whole = true
}

// item reads an output item of Responses at an index. It adds or completes the call
// if the item is a call. whole means that the item is complete.
func (a *answer) item(at int, v []byte, whole bool) {
	kind := jsontext.String(jsontext.Get(v, "type"))
	if whole {
		a.keep(v, kind)
	}
	if a.full() || !strings.HasSuffix(kind, "_call") {
		return
	}
	// The item opens a call unless an event before it did.
	c := itemCall(v, kind)
	p := a.find(at)
	if p == nil || p.ID != c.ID {
		args := c.Args
		c.Args, c.Whole = "", false
		if p = a.open(&part{Call: c, at: at}); !whole {
			a.add(p, args)
			return
		}
		c.Args = args
	}
	if whole {
		a.finish(p, c.Args)
		if kind == "web_search_call" {
			a.searches++
		}
	}
}

// keep records an item that a later request may refer to, with its tokens. It skips
// calls of hosted tools, because their results are not in the answer. A thought may
// be hidden, so its bound is the whole output; see thought.
func (a *answer) keep(v []byte, kind string) {
	if a.of == nil || len(a.kept) >= maxCalls {
		return
	}
	id := jsontext.String(jsontext.Get(v, "id"))
	if id == "" || slices.ContainsFunc(a.kept, func(k Kept) bool { return k.ID == id }) {
		return
	}
	n, ok := int64(thought), kind == "reasoning"
	if kind == "message" || strings.HasSuffix(kind, "_call") && tariff.OwnItem(kind) {
		n, ok = tariff.Item(a.of, v)
	}
	if ok {
		a.kept = append(a.kept, Kept{id, n})
	}
}

// thought marks the size of a thought in kept until the usage is known.
const thought = -1

// keeps returns the stored items of an answer that has ended, and the answer itself.
// Referring to the answer costs its input and output, and a margin for each item.
func (a *answer) keeps() (all []Kept) {
	if a.of == nil || a.id == "" {
		return nil
	}
	whole := a.usage.Input + a.usage.CacheRead + a.usage.CacheWrite + a.usage.Output + tariff.PerRequest
	for _, k := range a.kept {
		if k.Tokens == thought {
			k.Tokens = a.usage.Output
		}
		all, whole = append(all, k), whole+tariff.PerMessage
	}
	return append(all, Kept{a.id, whole})
}

// ended reads a whole Responses answer, which the last event of a stream contains
// too. It adds only the text and calls that no event before it brought.
func (a *answer) ended(r []byte) {
	a.name(&a.id, jsontext.Get(r, "id"))
	a.name(&a.model, jsontext.Get(r, "model"))
	a.name(&a.tier, jsontext.Get(r, "service_tier"))
	silent := a.text.Len() == 0 // no event brought text, so the items must
	for at, v := range jsontext.Elements(jsontext.Get(r, "output")) {
		a.keep(v, jsontext.String(jsontext.Get(v, "type")))
		if jsontext.String(jsontext.Get(v, "type")) == "message" && silent {
			for _, c := range jsontext.Elements(jsontext.Get(v, "content")) {
				a.say(jsontext.Bare(jsontext.Get(c, "text")))
				a.say(jsontext.Bare(jsontext.Get(c, "refusal")))
			}
		} else if p := a.find(at); p == nil || !p.Whole {
			a.item(at, v, true)
		}
	}
	if u := jsontext.Get(r, "usage"); jsontext.Kind(u) == '{' {
		a.responseUsage(u)
	}
	switch jsontext.String(jsontext.Get(r, "status")) {
	case "failed":
		a.failed(r)
		a.stop = ""
	case "incomplete":
		a.stop = model.StopLength
		if jsontext.String(jsontext.Get(jsontext.Get(r, "incomplete_details"), "reason")) == "content_filter" {
			a.stop = model.StopFilter
		}
	default:
		if a.stop == "" {
			a.stop = model.StopEnd
		}
	}
	a.close()
	a.done = true
}

// responseUsage reads the usage of a Responses answer.
func (a *answer) responseUsage(u []byte) {
	var in, out int64
	var details []byte
	for k, v := range jsontext.Members(u) {
		switch string(k) {
		case "input_tokens":
			in, a.hasInput = number(v), true
		case "output_tokens":
			out = number(v)
		case "input_tokens_details":
			details = v
		case "output_tokens_details":
			a.thought = number(jsontext.Get(v, "reasoning_tokens"))
		}
	}
	a.split(in, out, details)
}

// split stores a usage whose input includes cache reads and cache writes. It takes
// both out of the input, because they have prices of their own. Some cache writes
// are kept for half an hour and some for twelve hours; the latter go to hour.
func (a *answer) split(in, out int64, details []byte) {
	read := min(number(jsontext.Get(details, "cached_tokens")), in)
	write := min(number(jsontext.Get(details, "cache_write_tokens")), in-read)
	a.hour = min(number(jsontext.Get(jsontext.Get(details, "cache_write_tokens_details"), "ttl_12h_tokens")), write)
	a.usage = model.Usage{Input: in - read - write, CacheRead: read, CacheWrite: write, Output: out}
	a.reported, a.covers = a.hasInput, a.size
}

// message reads an event of a Messages stream, or a whole Messages answer.
func (a *answer) message(data []byte) {
	var kind, block, delta, usage, message, fault []byte
	at := 0
	for k, v := range jsontext.Members(data) {
		switch string(k) {
		case "type":
			kind = jsontext.Bare(v)
		case "index":
			at = int(number(v))
		case "content_block":
			block = v
		case "delta":
			delta = v
		case "usage":
			usage = v
		case "message":
			message = v
		case "error":
			fault = v
		}
	}
	switch string(kind) {
	case "message_start": // reports the input; message_delta reports the final output
		a.name(&a.id, jsontext.Get(message, "id"))
		a.name(&a.model, jsontext.Get(message, "model"))
		a.messageUsage(jsontext.Get(message, "usage"))
	case "content_block_start":
		a.block(at, block)
	case "content_block_delta":
		a.blockDelta(at, delta)
	case "content_block_stop":
		if p := a.find(at); p != nil {
			p.Whole = true
		}
	case "message_delta":
		a.messageUsage(usage)
		a.reported = a.hasInput && (a.reported || jsontext.Get(usage, "output_tokens") != nil)
		if s := jsontext.String(jsontext.Get(delta, "stop_reason")); s != "" {
			a.stop = messageStop(s)
			a.end(0)
		}
	case "message_stop":
		a.close()
		a.done = true
	case "message":
		a.wholeMessage(data, usage)
	case "error":
		a.failed(data)
	case "": // not an event: an error body, or the answer of count_tokens
		if jsontext.Kind(fault) != 'n' {
			a.failed(data)
		} else if n := jsontext.Get(data, "input_tokens"); n != nil {
			a.usage.Input, a.hasInput, a.reported, a.done = number(n), true, true, true
		}
	}
}

// wholeMessage reads a Messages answer that is not streamed.
func (a *answer) wholeMessage(data, usage []byte) {
	a.name(&a.id, jsontext.Get(data, "id"))
	a.name(&a.model, jsontext.Get(data, "model"))
	for at, b := range jsontext.Elements(jsontext.Get(data, "content")) {
		a.block(at, b)
	}
	a.messageUsage(usage)
	a.reported = a.hasInput && jsontext.Get(usage, "output_tokens") != nil
	a.stop = messageStop(jsontext.String(jsontext.Get(data, "stop_reason")))
	a.close()
	a.done = true
}

// block reads the start of a content block, or a whole block.
func (a *answer) block(at int, b []byte) {
	if c, ok := blockCall(b); ok {
		args := c.Args
		if c.Args, c.Whole = "", false; args == "{}" || args == "null" {
			args = "" // the pieces of the arguments follow in later events
		}
		a.add(a.open(&part{Call: c, at: at}), args)
		return
	}
	for k, v := range jsontext.Members(b) {
		switch string(k) {
		case "text":
			a.say(jsontext.Bare(v))
		case "thinking":
			a.think(jsontext.Bare(v))
		}
	}
}

// blockDelta reads a piece of a content block.
func (a *answer) blockDelta(at int, d []byte) {
	for k, v := range jsontext.Members(d) {
		switch string(k) {
		case "text":
			a.say(jsontext.Bare(v))
		case "thinking":
			a.think(jsontext.Bare(v))
		case "partial_json":
			if p := a.find(at); p != nil {
				a.add(p, jsontext.String(v))
			}
		}
	}
}

// messageStop returns the stop reason for a stop_reason of Messages.
func messageStop(s string) model.Stop {
	switch s {
	case "max_tokens", "model_context_window_exceeded":
		return model.StopLength
	case "tool_use":
		return model.StopTools
	case "refusal":
		return model.StopFilter
	}
	return model.StopEnd
}

// messageUsage stores the counts that are present. The counts are running totals,
// and the last event has only some of them.
func (a *answer) messageUsage(u []byte) {
	for k, v := range jsontext.Members(u) {
		if jsontext.Kind(v) == 'n' {
			continue
		}
		switch string(k) {
		case "input_tokens":
			a.usage.Input, a.hasInput = number(v), true
		case "output_tokens":
			a.usage.Output, a.covers = number(v), a.size
		case "cache_read_input_tokens":
			a.usage.CacheRead = number(v)
		case "cache_creation_input_tokens":
			a.usage.CacheWrite = number(v)
		case "cache_creation":
			a.hour = number(jsontext.Get(v, "ephemeral_1h_input_tokens"))
		case "server_tool_use":
			a.searches = number(jsontext.Get(v, "web_search_requests"))
		case "service_tier":
			a.name(&a.tier, v)
		}
	}
}
