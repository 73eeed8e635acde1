package syscalls

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/recent"
	"github.com/kern-run/kern/model"
)

// A Journal reads what processes recorded, and turns pages into messages.
type Journal struct {
	// Bytes reads a payload.
	Bytes func(abi.Data) ([]byte, error)
	// Record reads one record.
	Record func(pid abi.Pid, n uint64) (*abi.Record, error)
	// Answer reads the record that answers a call; nil if there is none.
	Answer func(pid abi.Pid, call uint64) (*abi.Record, error)
	// Records reads the records of a process after record n.
	Records func(pid abi.Pid, n uint64) iter.Seq2[*abi.Record, error]

	// messages holds the messages of running processes, so that a page is
	// read from the journal once.
	messages recent.Cache[pageName, page]
	setMax   sync.Once
}

// messagesMax is half the size in bytes of the messages that a Journal keeps.
const messagesMax = 32 << 20

// page is a message with its digest.
type page struct {
	model.Message
	sum abi.Hash
}

type pageName struct {
	pid abi.Pid
	n   uint64
}

// size returns roughly how many bytes of memory the message uses.
func (p page) size() int {
	n := len(p.Text) + 200
	for _, c := range p.Calls {
		n += len(c.Args) + 100
	}
	return n
}

// Message reads one page.
func (j *Journal) Message(pg process.Page) (model.Message, error) {
	p, err := j.page(pg)
	return p.Message, err
}

func (j *Journal) page(pg process.Page) (page, error) {
	k := pageName{pg.Pid, pg.N}
	j.setMax.Do(func() { j.messages.Max, j.messages.Weight = messagesMax, page.size })
	if p, ok := j.messages.Get(k); ok {
		return p, nil
	}
	r, err := j.Record(pg.Pid, pg.N)
	if err != nil {
		return page{}, err
	}
	m, err := j.message(pg, r)
	if err != nil {
		return page{}, fmt.Errorf("process %d record %d: %w", pg.Pid, pg.N, err)
	}
	p := page{m, sum(m)}
	j.messages.Put(k, p)
	return p, nil
}

// sum is a digest of a message.
func sum(m model.Message) abi.Hash {
	b, _ := json.Marshal(m) // a value of texts always encodes
	return abi.HashOf(b)
}

// message converts a page and its record r to a message to a model. A result that is a
// JSON string becomes its text.
func (j *Journal) message(pg process.Page, r *abi.Record) (m model.Message, err error) {
	switch pg.Role {
	case process.RoleTask, process.RoleUser:
		d := abi.Data{}
		if r.Spawn != nil {
			d = r.Spawn.Task
		} else if r.Intent != nil {
			d = r.Intent.Say
		}
		b, err := j.Bytes(d)
		return model.Message{Role: model.User, Text: string(b)}, err
	case process.RoleAssistant:
		b, err := j.Bytes(r.Answer.Value)
		if err != nil {
			return m, err
		}
		var reply Reply
		if err := json.Unmarshal(b, &reply); err != nil {
			return m, err
		}
		return model.Message{Role: model.Assistant, Text: reply.Text, Calls: reply.Calls}, nil
	}
	m = model.Message{Role: model.Tool, CallID: pg.ID}
	if r.Answer.Err != nil {
		b, err := json.Marshal(map[string]*abi.Error{"error": r.Answer.Err})
		m.Text, m.Failed = string(b), true
		return addWarning(m, r), err
	}
	b, err := j.Bytes(r.Answer.Value)
	m.Text = plainText(b)
	return addWarning(m, r), err
}

// plainText returns a value as a person reads it: a string without its quotes.
func plainText(value []byte) (text string) {
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	return text
}

// addWarning adds the warning of the watchdog to the result.
func addWarning(m model.Message, r *abi.Record) model.Message {
	if r.Answer.Warning != nil {
		b, _ := json.Marshal(map[string]*abi.Error{"warning": r.Answer.Warning})
		m.Text = strings.TrimLeft(m.Text+"\n"+string(b), "\n")
	}
	return m
}

// Conversation returns the pages of a process as messages to a model. The results of
// tools follow the reply that asked for them, in the order of the calls. The digest
// covers everything that is sent. A brief conversation lacks the results that the model
// has not read.
func (j *Journal) Conversation(l *Loaded, pages []process.Page, say string, brief bool) (msgs []model.Message, digest abi.Hash, err error) {
	c := conversation{msgs: make([]model.Message, 0, len(pages)+2), missing: "this call was not made"}
	if brief {
		pages = withoutUnread(pages)
		c.missing = "the result of this call is left out, because it does not fit the context"
	}
	c.digest = append(c.digest, l.sum[:]...)
	if l.Agent.System != "" {
		c.msgs = append(c.msgs, model.Message{Role: model.System, Text: l.Agent.System})
	}
	for i := 0; i < len(pages); {
		p, err := j.page(pages[i])
		if err != nil {
			return nil, digest, err
		}
		i++
		if p.Role == model.Tool {
			continue // results adds it after the reply
		}
		c.add(p)
		if len(p.Calls) > 0 {
			if err := j.results(&c, p.Calls, pages[i:]); err != nil {
				return nil, digest, err
			}
		}
	}
	if say != "" {
		m := model.Message{Role: model.User, Text: say}
		c.add(page{m, sum(m)})
	}
	return c.msgs, abi.HashOf(c.digest), nil
}

// withoutUnread returns pages without the results that came after the last reply.
func withoutUnread(pages []process.Page) []process.Page {
	read := len(pages)
	for read > 0 && pages[read-1].Role != process.RoleAssistant {
		read--
	}
	kept := slices.Clone(pages)
	return append(kept[:read], slices.DeleteFunc(kept[read:], func(pg process.Page) bool { return pg.Role == process.RoleTool })...)
}

type conversation struct {
	msgs    []model.Message
	digest  []byte
	missing string // said of a call without a result
}

func (c *conversation) add(p page) {
	c.msgs = append(c.msgs, p.Message)
	c.digest = append(c.digest, p.sum[:]...)
}

// results adds the answers to calls. Their pages come before the next reply.
func (j *Journal) results(c *conversation, calls []model.ToolCall, pages []process.Page) error {
	found := make(map[string]page, len(calls))
	for _, pg := range pages {
		if pg.Role == process.RoleAssistant {
			break
		}
		if pg.Role != process.RoleTool {
			continue
		}
		p, err := j.page(pg)
		if err != nil {
			return err
		}
		found[p.CallID] = p
	}
	for _, call := range calls {
		p, ok := found[call.ID]
		if !ok {
			m := model.Message{Role: model.Tool, CallID: call.ID, Text: `{"error":{"message":"` + c.missing + `"}}`, Failed: true}
			p = page{m, sum(m)}
		}
		c.add(p)
	}
	return nil
}

// lastWords returns the last text of the model, or else the last result of a
// tool.
func (j *Journal) lastWords(pages []process.Page) (string, error) {
	result := ""
	for _, pg := range slices.Backward(pages) {
		if pg.Role != process.RoleAssistant && (pg.Role != process.RoleTool || result != "") {
			continue
		}
		m, err := j.Message(pg)
		if err != nil {
			return "", err
		}
		if pg.Role == process.RoleAssistant && m.Text != "" {
			return m.Text, nil
		}
		if pg.Role == process.RoleTool && !m.Failed {
			result = m.Text
		}
	}
	return result, nil
}
