// Command soak runs a whole Kern as in production, and checks its promises.
//
// A real daemon stands in front of a provider that cuts, garbles, overloads and
// refuses. Many keys have limits and draw on accounts with limits. Clients of all
// four formats stream, hang up, read slowly and leave tool calls open. Programs run
// under kern exec and agents under kern run. Limits, priorities and signals change
// at random moments, and kill -9 comes every minute.
//
// After each start and at the end it compares three bills: the provider's, the
// daemon's and the journal's (check.go). It prints the resources of the daemon, so
// that growth becomes visible.
//
//	go run ./bench/soak -for 30m          # -seed decides everything but the times
//	go run ./bench/soak -kills 500        # kill -9 twice a second, and so often
//	go run ./bench/soak -ended 50000      # the cost of ended processes
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) == 2 && os.Args[1] == "agent" { // a program that kern exec runs
		runAgentProgram()
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "chat" { // another, that ends soon
		n, err := strconv.Atoi(os.Args[2])
		if err == nil {
			err = chat(context.Background(), os.Getenv("OPENAI_BASE_URL"), os.Getenv("OPENAI_API_KEY"), n)
		}
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	var o options
	flag.DurationVar(&o.length, "for", 20*time.Second, "how long everything runs")
	flag.DurationVar(&o.life, "life", time.Minute, "how long a daemon lives, about")
	flag.IntVar(&o.kills, "kills", 0, "end after so many kills, instead of after a time")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of all that is left to chance")
	flag.IntVar(&o.clients, "clients", 24, "clients at a time")
	flag.IntVar(&o.tenants, "tenants", 30, "keys that live at a time")
	flag.IntVar(&o.ended, "ended", 0, "measure what so many processes cost that have ended, in place of all else")
	flag.IntVar(&o.calls, "calls", 1, "how many calls each of those made; agents eight times as many")
	flag.BoolVar(&o.keep, "keep", false, "keep the data directory")
	flag.Parse()
	if o.kills > 0 {
		o.length, o.life = 24*time.Hour, 500*time.Millisecond
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if o.ended > 0 {
		err = measureEnded(ctx, o.ended, o.calls)
	} else {
		err = o.soak(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

type options struct {
	length, life     time.Duration
	seed             uint64
	clients, tenants int
	ended, calls     int
	kills            int // 0: no bound
	keep             bool
}

// soak is the whole run.
func (o *options) soak(ctx context.Context) error {
	fmt.Printf("seed %d\n", o.seed)
	w, err := newWorld(o)
	if err != nil {
		return err
	}
	defer w.close()
	deadline := time.Now().Add(o.length)
	busy, quit := context.WithCancel(ctx)
	defer quit()
	var all sync.WaitGroup
	for i := range o.clients {
		all.Go(func() { w.runClient(busy, w.random(uint64(1000+i))) })
	}
	for i, work := range []func(context.Context, *rand.Rand){w.makeKeys, w.sendOrders, w.sendOrders, w.typeCommands, w.execPrograms, w.execPrograms, w.runAgents, w.runEffects, w.runEffects, w.runEffects, w.removeProcesses, w.followRecords} {
		all.Go(func() { work(busy, w.random(uint64(2000+i))) })
	}
	rnd := w.random(1)
	fmt.Println(heading)
	for left := time.Until(deadline); left > 0 && ctx.Err() == nil; left = time.Until(deadline) {
		life := min(left, o.life/2+time.Duration(rnd.Int64N(int64(o.life))))
		if o.kills > 0 {
			w.pause(ctx, life)
		} else {
			w.observe(ctx, life)
		}
		if o.kills > 0 && w.crashes >= o.kills {
			break
		}
		if time.Until(deadline) > 0 && ctx.Err() == nil {
			again := func() error { return w.restart(ctx, rnd.IntN(2) == 0) }
			if o.kills > 0 {
				again = func() error { return w.crash(ctx) }
			}
			if err := again(); err != nil {
				quit()
				all.Wait()
				return err
			}
		}
	}
	quit()
	all.Wait()
	return errors.Join(w.finish(context.WithoutCancel(ctx)), w.verdict(o.seed))
}
