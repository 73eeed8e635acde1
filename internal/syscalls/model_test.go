package syscalls

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kern-run/kern/abi"
	"github.com/kern-run/kern/internal/kernel"
	"github.com/kern-run/kern/internal/kernel/process"
	"github.com/kern-run/kern/internal/provider"
	"github.com/kern-run/kern/model"
)

// stated is a model of which only the facts matter.
type stated struct {
	model.Model
	facts model.Facts
	count int
}

func (k stated) Facts() model.Facts      { return k.facts }
func (k stated) Count(model.Request) int { return k.count }

// TestRoutes: a call is planned for the model that its way leads to, with that
// one's price, count and resource, as they were recorded; and a replay takes the
// price of each of them for the recorded one, wherever the providers stand now.
func TestRoutes(t *testing.T) {
	models := map[string]stated{
		"p:first":  {facts: model.Facts{Name: "p:first", Provider: "p"}, count: 100},
		"q:second": {facts: model.Facts{Name: "q:second", Provider: "q", Price: model.Price{Input: 77}}, count: 120},
		"q:small":  {facts: model.Facts{Name: "q:small", Provider: "q"}, count: 130},
	}
	away := map[string]time.Duration{}
	w := &World{
		Open: func(p *abi.Agent) (model.Model, error) {
			if m, ok := models[p.Model]; ok {
				return m, nil
			}
			return nil, provider.ErrNoKey
		},
		Away:    func(resource string) time.Duration { return away[resource] },
		Journal: Journal{Bytes: func(d abi.Data) ([]byte, error) { return d.Bytes, nil }},
	}
	price := func(n int64, window int) *abi.ModelFacts {
		return &abi.ModelFacts{Price: abi.Price{Input: n * 1e9}, Priced: true, Window: window}
	}
	program, err := json.Marshal(abi.Agent{Model: "p:first", Facts: price(3, 0), Fallback: []abi.Fallback{
		{Model: "r:nobody", Facts: price(9, 0)}, {Model: "q:small", Facts: price(8, 130)}, {Model: "q:second", Facts: price(5, 121)}}})
	if err != nil {
		t.Fatal(err)
	}
	v := kernel.View{Spawn: &abi.Spawn{Program: abi.Data{Bytes: program}}}
	c := abi.Call{Pid: 1, N: 1, Row: "model"}
	plan := func(name, resource string, input, price int64, other bool) kernel.Plan {
		t.Helper()
		pl, e := Table(w)["model"].Plan(v, c)
		if e != nil {
			t.Fatal(e)
		}
		if pl.Source.Resource != resource || pl.Context != input || pl.Price.Input != price*1e9 || pl.Source.Other != other || pl.Reserve[abi.Money] != input*price*1000 {
			t.Errorf("%s: %+v %+v, reserves %v", name, pl.Source, pl.Price, pl.Reserve)
		}
		return pl
	}
	first := plan("all are there", "p/first", 100, 3, true)
	away["p/first"] = time.Minute
	second := plan("the first is away, and one is too small", "q/second", 120, 5, false)
	delete(away, "p/first")
	v.Before = second.Work
	plan("the attempt before went to the second", "q/second", 120, 5, true)
	v.Before = nil
	away["p/first"] = time.Minute
	for _, pl := range []kernel.Plan{first, second} {
		was := abi.Intent{Key: process.KeyOf("model", pl.Subject), Reserve: pl.Reserve, Price: pl.Price}
		if why := w.SameRequest(v, c, &was); why != "" {
			t.Errorf("%s: %s", pl.Source.Resource, why)
		}
		was.Price.Input++
		if why := w.SameRequest(v, c, &was); why == "" {
			t.Errorf("%s: another price is the same", pl.Source.Resource)
		}
	}
}

// TestSameRequestNearTheLimit: a replay takes from the record whether the model was
// warned, whether room was kept, and whether the last words were asked for in brief. A
// journal that was written before there were warnings has none.
func TestSameRequestNearTheLimit(t *testing.T) {
	reply := `{"calls":[{"id":"c1","name":"look"}]}`
	records := map[uint64]*abi.Record{
		1: {Spawn: &abi.Spawn{Task: abi.Data{Bytes: []byte("go")}}},
		2: {Answer: &abi.Answer{Value: abi.Data{Bytes: []byte(reply)}}},
		3: {Answer: &abi.Answer{Value: abi.Data{Bytes: []byte(`"seen"`)}}},
	}
	used, window := 0, 0
	w := &World{
		Open: func(*abi.Agent) (model.Model, error) {
			return stated{facts: model.Facts{Name: "p:m", Provider: "p", Window: window}, count: used}, nil
		},
		Away: func(string) time.Duration { return 0 },
		Journal: Journal{
			Bytes:  func(d abi.Data) ([]byte, error) { return d.Bytes, nil },
			Record: func(_ abi.Pid, n uint64) (*abi.Record, error) { return records[n], nil },
		},
	}
	for _, c := range []struct {
		name         string
		limit        int64
		window       int
		used         int
		args         string
		warned, fits bool
	}{
		{"there is much room", 1000, 0, 799, `{}`, false, true},
		{"at the warning", 1000, 0, 800, `{}`, true, true},
		{"the last that leaves room", 1000, 0, 840, `{}`, true, true},
		{"no room for last words", 1000, 0, 841, `{}`, false, false},
		{"there is much room in the window", 0, 10_000, 7_999, `{}`, false, true},
		{"at the warning in the window", 50_000, 10_000, 8_000, `{}`, true, true},
		{"the last that leaves room in the window", 0, 10_000, 8_816, `{}`, true, true},
		{"no room in the window", 0, 10_000, 8_817, `{}`, false, false},
		{"a bound that keeps no room", 799, 0, 799, `{}`, false, true},
		{"last words", 1000, 0, 841, `{"last":true,"say":"stop"}`, false, true},
		{"last words that are too long", 1000, 0, 1001, `{"last":true,"say":"stop"}`, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			used, window = c.used, c.window
			program := fmt.Appendf(nil, `{"model":"p:m","name":%q}`, c.name)
			v := kernel.View{Pid: 1, Spawn: &abi.Spawn{Program: abi.Data{Bytes: program}}, Context: c.limit, Pages: []process.Page{
				{Pid: 1, N: 1, Role: process.RoleTask}, {Pid: 1, N: 2, Role: process.RoleAssistant}, {Pid: 1, N: 3, Role: process.RoleTool, ID: "c1"}}}
			call := abi.Call{Pid: 1, N: 9, Row: "model", Args: json.RawMessage(c.args)}
			pl, e := w.planModel(v, call, w.Away)
			if (e == nil) != c.fits || e != nil && e.Code != abi.LimitContext {
				t.Fatalf("%v", e)
			}
			if warned := strings.Contains(string(pl.Say), "nearly full"); warned != c.warned {
				t.Errorf("it says %q", pl.Say)
			}
			was := abi.Intent{Key: process.KeyOf("model", pl.Subject), Reserve: pl.Reserve, Price: pl.Price, Say: abi.Data{Bytes: pl.Say, Size: int64(len(pl.Say))}}
			if why := w.SameRequest(v, call, &was); why != "" {
				t.Error(why)
			}
			a, _ := decode[ModelArgs](call)
			plain, e := w.planRequest(&v, a, false, w.Away) // as it was planned before there were warnings
			if e != nil {
				t.Fatal(e)
			}
			was.Key, was.Say = process.KeyOf("model", plain.Subject), abi.Data{Bytes: plain.Say, Size: int64(len(plain.Say))}
			if why := w.SameRequest(v, call, &was); why != "" {
				t.Errorf("a journal without warnings: %s", why)
			}
			was.Key[0]++
			if why := w.SameRequest(v, call, &was); why == "" {
				t.Error("another request is the same")
			}
		})
	}
}
