package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/kern-run/kern/bench/rig"
)

// compareGateways measures the time that each gateway adds to the same provider, in
// turn. It starts Kern; the others run already and ask the provider at that address.
func compareGateways(at string, gateways []rig.Gateway, n int) error {
	for _, part := range []struct {
		what          string
		mock          []string
		clients, each int
		over          time.Duration
		stream        bool
	}{
		{"streams, 10 at once, to the first event", []string{"--tps", "20"}, 10, 40 / n, 500 * time.Millisecond, true},
		{"whole answers after 20 ms, 10 at once", []string{"--latency", "20ms"}, 10, 60 / n, 20 * time.Millisecond, false},
		{"answers at once, 64 clients", nil, 64, 100 / n, 0, false},
	} {
		if err := comparePart(at, gateways, part.what, part.mock, part.clients, max(2, part.each), part.over, part.stream); err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return nil
}

const compareRow = "%-16s %10s %10s %12s %12s %12s\n"

// comparePart prints one part: the time that each gateway adds, and its throughput.
func comparePart(at string, gateways []rig.Gateway, what string, mock []string, clients, each int, over time.Duration, stream bool) error {
	url, end, err := rig.StartMock(append([]string{"--reply", reply, "--price", "1/10", "--port", at}, mock...)...)
	if err != nil {
		return err
	}
	defer end()
	names, all := []string{"bare"}, []client{newClient(url, "any")}
	for _, g := range gateways {
		c, end, err := openGateway(&g, url)
		if err != nil {
			return fmt.Errorf("%s: %w", g.Name, err)
		}
		defer end()
		names, all = append(names, g.Name), append(all, c)
	}
	took, rate := make([][]time.Duration, len(all)), make([][]float64, len(all))
	for i := range rounds + 1 { // the first to warm up
		for j := range all {
			t, whole, err := all[j].askMany(clients, each, over, stream)
			if err != nil {
				return fmt.Errorf("%s: %w", names[j], err)
			}
			if i == 0 {
				continue
			}
			if !stream {
				t.first = t.last
			}
			took[j] = append(took[j], t.first...)
			rate[j] = append(rate[j], float64(clients*each)/whole.Seconds())
		}
	}
	fmt.Printf("\n%s\n"+compareRow, what, "", "p50", "p99", "added p50", "added p99", "requests/s")
	for j := range all {
		slices.Sort(took[j])
		slices.Sort(rate[j])
		p50, p99 := medianAndP99(took[j])
		b50, b99 := medianAndP99(took[0])
		fmt.Printf(compareRow, names[j], short(p50), short(p99), short(p50-b50), short(p99-b99), fmt.Sprintf("%.0f", rate[j][len(rate[j])/2]))
	}
	return nil
}

func medianAndP99(d []time.Duration) (p50, p99 time.Duration) {
	return d[len(d)/2], d[(len(d)-1)*99/100]
}

// openGateway returns a client of a gateway, with a key that can pay everything.
func openGateway(g *rig.Gateway, provider string) (c client, end func(), err error) {
	const plenty = 1_000_000_000_000
	if g.URL != "" {
		key, err := g.NewKey(plenty)
		c = newClient(g.URL, key)
		c.model = g.Model
		return c, func() {}, err
	}
	k, err := rig.StartDaemon("", provider, 4*idle)
	if err != nil {
		return c, nil, err
	}
	base, key, err := k.NewKey(plenty)
	if err != nil {
		k.Close()
		return c, nil, err
	}
	return newClient(base, key), k.Close, nil
}
