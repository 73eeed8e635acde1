package kernel

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A mutant is a promise broken on purpose: one place of the code is changed,
// and the tests named must see it. What is replaced stands there exactly once.
type mutant struct {
	name     string
	file     string
	old, new string
	tests    string
	in       string // the package of the tests; empty: this one
}

var mutants = []mutant{
	// P1: it stops
	{"check without reserve", "wait.go", "	p.state.Account.Hold(&o.held)\n", "	o.held = abi.Usage{}\n", "TestMoneyLimit|TestManyCallers|TestLedger", ""},
	{"begun calls reserve nothing", "process/state.go", "	s.Account.Reserve(&in.Reserve)\n", "", "TestLedger|TestDrift", ""},
	{"held for ever", "run.go", "	o.unhold()\n	o.begun = true\n", "	o.held = abi.Usage{}\n	o.begun = true\n", "TestLedger|TestSmallerPasses", ""},
	{"settled twice", "process/state.go", "	s.Account.Settle(&in.Reserve, &a.Usage)\n", "	s.Account.Settle(&in.Reserve, &a.Usage)\n	s.Account.Settle(&abi.Usage{}, &a.Usage)\n", "TestMoneyLimit|TestLedger", ""},
	{"only its own account", "ledger/ledger.go", "func (a *Account) Hold(u *abi.Usage) {\n	for ; a != nil; a = a.Parent {\n", "func (a *Account) Hold(u *abi.Usage) {\n	for ; a != nil; a = nil {\n", "TestManyCallers|TestLedger", ""},
	{"a refund", "run.go", "		d.Usage[u] = max(0, d.Usage[u])", "		d.Usage[u] = d.Usage[u]", "TestNoRefund", ""},
	{"the limit may be passed by one", "ledger/fit.go", "a.Counted(abi.Unit(u))+a.Doubt[u]+claimed[u] > limit-need[u] {", "a.Counted(abi.Unit(u))+a.Doubt[u]+claimed[u] > limit-need[u]+1 {", "TestMoneyLimit|TestAdmitEdges|TestLedger", ""},
	{"children cost nothing", "process/state.go", "		s.Account.Parent.Settle(&abi.Usage{}, &abi.Usage{abi.Children: 1})\n", "", "TestLedger|TestEnds", ""},
	{"a child gets what it asks for", "spawn.go", "		if asked, set := child.Get(u); set && asked > n {\n			child.Set(u, n)\n", "		if asked, set := child.Get(u); set && asked > n {\n", "TestSpawnNarrows", ""},
	// nobody waits for ever
	{"nobody is woken", "ledger/queue.go", "			queue[0].Poke()\n", "			_ = queue\n", "TestSmallerPasses|TestLedger", ""},
	{"only the first is woken", "ledger/queue.go", "			next.Poke()\n", "", "TestSmallerPasses", ""},
	{"waits without hope", "ledger/fit.go", "b.lacks(need, &claimed); short {", "b.lacks(need, &claimed); short && b.Reserved[abi.Money]+b.Held[abi.Money] == 0 {", "TestNoHope", ""},
	{"what is settled elsewhere is not heard of", "ledger/queue.go", "		a.wakeFull()\n", "", "TestHopeLost", ""},
	{"less is not offered", "ledger/queue.go", "		if a.isFull(&w.Most) {\n", "		if a.isFull(&w.Least) {\n", "TestHopeLost", ""},
	{"who goes wakes nobody", "ledger/queue.go", "		q.queue[i].Poke()\n", "", "TestRoomForTwo", ""},
	{"a parent that waits is not seen", "do.go", "		p.inner++\n		p.pokeBelow()\n", "		p.inner++\n", "TestNestedWaits", ""},
	{"in each other's way for ever", "ledger/queue.go", "	return left < least\n", "	return false\n", "TestInEachOthersWay", ""},
	{"claims weigh everywhere", "ledger/fit.go", "	for len(claims) > 0 && claims[0].At == a {\n", "	for len(claims) > 0 {\n", "TestClaimsOnTheirAccount|TestAdmitEdges", ""},
	{"an exit that waits is not woken", "signal.go", "			o.waiting.poke()\n", "", "TestExitUnderTerm", ""},
	{"a second term wakes nobody", "signal.go", "last words\n			p.pokeAll()\n", "last words\n", "TestTermAgain", ""},
	{"who may not wait for room waits", "admit.go", "(!f.Wait || plan.Firm)", "!f.Wait", "TestFirm", ""},
	{"who waits for room keeps the old priority", "ledger/queue.go", "		w.enqueue()\n	}\n}\n\n// Leave", "		w.at.waiters.queue = append(w.at.waiters.queue, w)\n	}\n}\n\n// Leave", "TestNice", ""},
	{"who waits for a turn keeps the old priority", "change.go", "		p.k.cfg.Rank(p.state.Pid, p.state.Priority)\n", "		_ = p\n", "TestNice", ""},
	{"a change is held against what stood before", "change.go", "		t, err = p.change(0, &e)\n", "		l, _ := e.Apply(p.state.Account.Limits)\n		k.procs.mu.Unlock()\n		k.procs.mu.Lock()\n		t, err = p.change(0, &abi.Edit{Limits: l, Priority: e.Priority, By: e.By})\n", "TestEdits", ""},
	{"a narrowing raises", "../../abi/record.go", "e.Narrow && set && n > was", "e.Narrow && set && n < 0", "TestEdits", ""},
	// P2: once
	{"no intent", "run.go", "	if !j.Plan.Intent {\n", "	if true {\n", "TestCrashAtEveryWrite$", ""},
	{"the effect does not wait for its intent", "run.go", "	if err := t.Wait(o.ctx); err != nil {\n		return Done{Err: o.stopped()}, false\n", "	if t.Wait(context.Background()); false {\n		return Done{Err: o.stopped()}, false\n", "TestCrashAtEveryWrite$", ""},
	{"the answer comes before the commit", "run.go", "	if t.Wait(context.Background()) != nil {\n", "	if _ = t; false {\n", "TestCrashAtEveryWrite$", ""},
	{"what is in doubt is done again", "recover.go", "Again: in.Effect.Repeatable(), Err:", "Again: true, Err:", "TestCrashAtEveryWrite$|TestLedger", ""},
	{"what is in doubt is refunded", "process/state.go", "		s.Account.KeepInDoubt(&in.Reserve)\n", "		s.Account.Settle(&in.Reserve, &abi.Usage{})\n", "TestCrashAtEveryWrite$|TestRowBreaks", ""},
	{"what was answered is forgotten", "recover.go", "		p.answerDoubt()\n", "		p.state.Calls.Done = nil\n		p.answerDoubt()\n", "TestOnce|TestCrashAtEveryWrite$", ""},
	{"other content is answered too", "answers.go", "!bytes.Equal(schema.Spelling(nil, before), schema.Spelling(nil, c.Args))", "len(schema.Spelling(nil, before)) < 0 && bytes.Equal(nil, nil)", "TestOnce", ""},
	{"a child is made twice", "spawn.go", "	if pid := parent.state.Children[j.Call.N]; pid != 0 {\n		return pid, nil\n	}\n", "", "TestSpawnNarrows|TestCrashAtEveryWrite$", ""},
	{"a message is sent twice", "mail.go", "!got.Has(j.Call.N)", "true || got.Has(j.Call.N)", "TestSentOnce", ""},
	{"a break-down is a failure", "run.go", "				e.Code = abi.OutcomeUnknown\n", "", "TestRowBreaks", ""},
	// P4: state is a fold
	{"the question and the call share an intent", "plan.go", "	if d.recorded { // a record that was queued may not change\n", "	if false {\n", "TestFoldOfCut|TestLedger", ""},
	{"a limit that was hit is not remembered", "process/state.go", "		c.Hits |= 1 << u\n", "		_ = u\n", "TestEnds", ""},
	{"a sleep begins anew after a restart", "process/state.go", "		in, since = o.Intent, o.Since\n", "		in = o.Intent\n", "TestSleepAcrossRestarts", ""},
	{"live state that no record tells of", "run.go", "	o.begun = true\n", "	o.begun = true\n	p.state.Calls.Steps++\n", "TestFoldOfCut|TestLedger", ""},
	{"who was waited for is forgotten", "process/state.go", "		c.Reaped.Add(a.Took)\n", "", "TestWaitForAny", ""},
	{"the journal's chain is not checked", "../journal/sqlite/read.go", "	if !bytes.Equal(c.run.sum[:checkLen], stored) {", "	if false && !bytes.Equal(c.run.sum[:checkLen], stored) {", "TestDamage|TestFlippedBytes", "internal/journal/sqlite"},
	// P5: it dies well
	{"children are not killed", "exit.go", "	for _, pid := range slices.Sorted(maps.Keys(p.state.Living)) {", "	for _, pid := range slices.Sorted(maps.Keys(p.state.Living))[:0] {", "TestEnds|TestKillFromAbove", ""},
	{"the parent ends before its children", "exit.go", " || len(p.state.Living) > 0 {\n", " {\n", "TestKillFromAbove|TestLedger", ""},
	{"the parent is not told", "exit.go", "		parent.news.ring()\n", "", "TestEnds", ""},
	{"a call that does not stop is waited for", "exit.go", "p.afterFunc(p.k.cfg.Grace, p.abandonCalls)", "p.afterFunc(p.k.cfg.Grace, func() {})", "TestEnds", ""},
	{"stop lets through what waited for its turn", "run.go", "p.state.Phase == abi.Paused || !p", "!p", "TestStopHoldsBack", ""},
	{"a call begins past a limit that was lowered in its turn", "run.go", " || !p.state.Account.Within(&o.held)", "", "TestLimitLoweredInTurn", ""},
	{"the deadline is forgotten by a restart", "recover.go", "		p.watchWall()\n", "", "TestWallAcrossRestarts", ""},
	{"a second term cuts the last words", "signal.go", "		if again { // a second term must not cut the last words\n", "		if again && false {\n", "TestLastWords", ""},
	{"a closing kernel fails what waits", "run.go", " || a.Err.Code == abi.DaemonGone) &&", ") &&", "TestCloseWaits", ""},
	{"a full disk keeps alive what should end", "signal.go", "		case s == abi.Cont:\n", "		case true:\n", "TestEndsOnFullDisk", ""},
	{"a full disk keeps alive what ends by itself", "do.go", "	case c.Row == process.ExitRow: // an exit", "	case false: // an exit", "TestEndsOnFullDisk", ""},
	{"signals are queued for ever", "signal.go", "s == abi.Stop && p.state.Phase == abi.Paused, ", "", "TestStopOnFullDisk", ""},
	{"a program is not told on a full disk", "../../cmd/kern/exec_program.go", "	p.orders = o\n", "	o = was\n", "TestKillOnFullDisk", "cmd/kern"},
	{"a free model is asked without money", "ledger/fit.go", "abi.Unit(u) == abi.Money && need[abi.ModelCalls] > 0", "abi.Unit(u) == abi.Money && false", "TestNoMoneyNoModel", ""},
	{"a restart gives all time for last words", "recover.go", "			p.watchTerm()\n", "			_ = p\n", "TestTermAcrossRestarts", ""},
	{"a fork gets what is in doubt", "ledger/ledger.go", "limit - a.Counted(u) - a.Doubt[u], limited", "limit - a.Counted(u), limited", "TestForkOfDoubt", ""},
	{"an exit is believed", "exit.go", "	case limit && p.state.Calls.Hits&(1<<u) != 0:", "	case limit:", "TestExitByALimit", ""},
	{"a wait that was given up is an answer", "run.go", "	if e.Code.Momentary() {\n", "	if false {\n", "TestAskedAgain", ""},
	// what has ended is let go, and nothing is lost with it
	{"nobody is let go", "exit.go", "			ps.bury(e.p)\n", "			_ = e.p\n", "TestExitLetsGo|TestLetGoIsKept", ""},
	{"let go before the disk", "exit.go", " && q.queue[0].pending.Done() {\n", " {\n", "TestNotBeforeTheDisk|TestRefusedStays", ""},
	{"let go though refused", "exit.go", "e.pending.Wait(context.Background()) == nil {", "e.pending.Wait(context.Background()) == nil || true {", "TestRefusedStays", ""},
	{"what was let go answers nothing", "do.go", "		if answer, ok = k.answers.find(c); ok {\n			return answer, true\n		}\n", "", "TestAskedOfTheGone", ""},
	{"who was let go is waited for", "process/machine.go", "	return s == nil || s.Exit != nil\n", "	return s != nil && s.Exit != nil\n", "TestWaitForTheGone", ""},
	{"children of what was let go are not folded", "recording.go", "		then = math.MaxInt64", "		then = math.MinInt64", "TestForkOfTheGone", ""},
	{"what the gone took is booked nowhere", "process/machine.go", "		s.Account.Parent = g.Above\n", "		_ = g\n", "TestLetGoIsKept", ""},
	{"why it ended is forgotten", "process/summary.go", "b.Account, *b.Exit})", "b.Account, Exit{}})", "TestLetGoIsKept", ""},
	{"what those below took is forgotten by a restart", "process/machine.go", "		g.PackedSummary = g.AddChild(&sum)\n", "", "TestLetGoIsKept", ""},
	{"what those below took is forgotten when it is folded", "process/machine.go", " = g.Above, sum.Used, sum.Reserved, sum.Doubt\n", " = g.Above, s.Account.Settled, s.Account.Reserved, sum.Doubt\n", "TestLetGoIsKept", ""},
	{"orphans go on", "recover.go", "		if ps.isBuried(p.state.Spawn.Parent) {", "		if false {", "TestOrphan", ""},
	{"what is too large is taken up", "plan.go", "	d.tooLarge = journal.Fits(&d.intent, d.blobs)\n", "	_ = journal.Fits\n", "TestTooLargeForTheJournal", ""},
	// what is published and what is recorded agree
	{"a commit stands before the journal has it", "run.go", "	t := o.applyEnd(j, &r)\n	k.procs.mu.Unlock()\n", "	t := o.applyEnd(j, &r)\n	k.procs.mu.Unlock()\n	o.confirmCommit(true)\n", "TestCrashAtEveryWrite$", ""},
	{"a commit that stands is taken back", "run.go", "	o.confirmCommit(true)\n", "	o.confirmCommit(false)\n", "TestCrashAtEveryWrite$|TestCommitAt|TestLedger", ""},
	{"nobody hears of a call that was given up", "run.go", "		o.confirmCommit(false)\n", "", "TestAbandonedPublished", ""},
	{"a call that was given up stands", "run.go", "		o.confirmCommit(false)\n", "		o.confirmCommit(true)\n", "TestAbandonedPublished", ""},
	{"the commit is not recorded", "run.go", "	a.Commit, a.Digest, a.Rolled, o.confirm = d.Commit,", "	a.Commit, a.Digest, a.Rolled, o.confirm = abi.Hash{},", "TestCommitAt|TestLedger", ""},
	{"the fold forgets the commit", "process/state.go", "		regs.Commit = a.Commit\n", "		_ = a.Commit\n", "TestCommitAt", ""},
	{"a rollback is forgotten", "process/state.go", "Rolled: a.Rolled,", "", "TestThreeRollbacks", ""},
	{"rollbacks count live only", "process/watchdog.go", "		w.Rolled[s.Name]++\n", "", "TestThreeRollbacks", ""},
	{"rollbacks are never forgiven", "process/watchdog.go", "		delete(w.Rolled, s.Name)\n", "", "TestThreeRollbacks", ""},
	{"a changed workspace is no progress", "process/watchdog.go", "a.Key == b.Key && a.Digest == b.Digest && ", "a.Key == b.Key && ", "TestChangedWorkspace", ""},
	{"a pure tool publishes", "../staging/staging.go", "failure == nil && c.Effect != abi.Pure", "failure == nil", "TestScenario17Rollback", "internal/host"},
	{"nobody asks what must hold", "../staging/staging.go", "if e := s.checkInvariants(ctx, changes); e != nil {", "if e := s.checkInvariants(ctx, nil); e != nil {", "TestScenario17Rollback", "internal/host"},
	{"what is in doubt always stands", "../host/workspaces.go", "	if stands {\n", "	if stands || true {\n", "TestDoubtOfTheDead", "internal/host"},
	{"what is in doubt is always taken back", "../host/workspaces.go", "	if stands {\n", "	if stands && false {\n", "TestDoubtOfTheDead", "internal/host"},
	{"nobody asks what the dead left", "../host/host.go", "	k.spaces.recover()\n", "", "TestDoubtOfTheDead", "internal/host"},
	{"equal digests are believed", "../staging/digest.go", "at >= 0 && !same(w, known[at], now)", "at >= 0 && false && !same(w, known[at], now)", "TestCollision", "internal/staging"},
	{"undone in the order it was done", "../syscalls/undo.go", "range slices.Backward(calls)", "range slices.All(calls)", "TestGroupUndone", "internal/host"},
	{"a restart forgets why the run ends", "../loop/loop.go", "	if where.Stop.Call != 0 {\n", "	if false {\n", "TestCrashAtEveryRecord", "internal/host"},
	{"what went well is undone", "../loop/loop.go", "	bad, first := reply.bad, reply.stop\n", "	bad, first := true, reply.stop\n", "TestGroupUndone", "internal/host"},
	{"after a restart nothing is undone", "../loop/loop.go", "				bad = r.Answer.Outcome != abi.OK\n", "				bad = r == nil\n", "TestUndoneOnce", "internal/host"},
	// the watchdog and the breaker
	{"a restart makes the watchdog forget", "recover.go", "		p.answerDoubt()\n", "		p.state.Watchdog = process.Watchdog{}\n		p.answerDoubt()\n", "TestWarnedOnce", ""},
	{"it warns for ever", "process/state.go", "			s.Watchdog.Warn()\n", "", "TestWarnedOnce", ""},
	{"a warning lasts for ever", "process/watchdog.go", "	if w.Progress == newCallsOfProgress {", "	if false {", "TestWarnings", "internal/kernel/process"},
	{"no share is too large", "process/watchdog.go", "	return w.findShare(s, 4*repeat, 4*repeat-2)\n", "	return nil\n", "TestVerdicts", "internal/kernel/process"},
	{"a lost race is a loop", "run.go", " && !d.Err.Code.Contention()", "", "TestLostRaces", ""},
	{"a lost race blocks the tool", "process/blocked.go", " || a.Err.Code.Contention()", "", "TestLostRaces", ""},
	{"a restart wakes a tool that rests", "recover.go", "		p.answerDoubt()\n", "		p.state.Failures = nil\n		p.answerDoubt()\n", "TestScenario18Breaker", ""},
}

// TestMutants breaks each promise and looks whether a test sees it. It compiles
// this package once for each mutant, so the short form only checks that the code
// to replace is there.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			file, err := filepath.Abs(m.file)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(b), m.old); n != 1 {
				t.Fatalf("%q stands in %s %d times, want once", m.old, m.file, n)
			}
			if !soak {
				return // long: set KERN_SOAK=1
			}
			if !soak {
				return // long: set KERN_SOAK=1
			}
			dir := t.TempDir()
			broken := filepath.Join(dir, "broken.go")
			overlay := filepath.Join(dir, "overlay.json")
			o, err := json.Marshal(map[string]map[string]string{"Replace": {file: broken}})
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string][]byte{broken: []byte(strings.Replace(string(b), m.old, m.new, 1)), overlay: o} {
				if err := os.WriteFile(name, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			in := m.in
			if in == "" {
				in = "internal/kernel"
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-timeout=120s", "-run", m.tests, "./"+in)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "KERN_SOAK=")
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("it lives: %s see nothing", m.tests)
			case strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
				t.Errorf("it does not compile:\n%s", out)
			case !strings.Contains(string(out), "FAIL"):
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}
