package syscalls

import (
	"encoding/json"
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
