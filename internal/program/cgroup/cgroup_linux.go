package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// groupPrefix begins the name of every cgroup made here. The pid and start time of
// its supervisor follow, so that a later one knows which groups have no owner.
const groupPrefix = "kern-jail-"

// groupCount numbers the groups of this process.
var groupCount atomic.Int64

// A Driver makes cgroups, of one version.
type Driver struct {
	v2        bool
	trees     map[string]string // controller to directory below which to work; v2 has the one key ""
	home      string            // v2: the group of this process and of each init outside of its start
	around    []string          // v2: groups that contain this process and not the groups made here
	owner     string
	mkdir     func(string) error
	rmdir     func(string) error
	delegated func(string) bool // v2: whether this process may divide the group
}

// A Group holds one run.
type Group struct {
	name         string
	v2           bool
	home         string
	maxProcesses int64 // bound on processes that no limit may exceed; 0: none
	mkdir        func(string) error
	rmdir        func(string) error
	dirs         map[string]string // by controller; v2 has the one key ""
	tasks        []*os.File        // v1: written by the thread that enters
	meter        map[string]*os.File
}

// NewDriver returns a Driver of v1 for a test: trees are plain directories, by
// controller. mkdir makes a group with its files, and rmdir removes it.
func NewDriver(trees map[string]string, mkdir, rmdir func(string) error) *Driver {
	return &Driver{trees: trees, owner: "0-0", mkdir: mkdir, rmdir: rmdir}
}

// Name is the last element of the group's path in every hierarchy.
func (g *Group) Name() string { return g.name }

// Hierarchies returns the number of hierarchies that have the group.
func (g *Group) Hierarchies() int { return len(g.dirs) }

// WholeProcesses reports whether only whole processes enter, not single threads.
func (g *Group) WholeProcesses() bool { return g.v2 }

// Tasks returns the tasks files of the group (v1). A thread enters the group by writing
// "0" to each of them.
func (g *Group) Tasks() []*os.File { return g.tasks }

// controllers are the controllers of v1 that a run needs. On v2, CPU time needs none.
var controllers = []string{"memory", "pids", "cpuacct"}

// Find finds a directory where cgroups with all three controllers can be made, by
// making one.
func Find(below string) (*Driver, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	owner, err := ownerName(os.Getpid())
	if err != nil {
		return nil, err
	}
	return firstWorking(candidates(string(mounts), string(own), below), owner)
}

// firstWorking returns the first driver that works, or why there is none.
func firstWorking(all []*Driver, owner string) (*Driver, error) {
	var why []string
	for _, d := range all {
		d.owner = owner
		err := d.checkAround()
		if err == nil {
			err = d.tryGroup()
		}
		// A group with a process in it limits no group below it. Once this process has left, the same group may
		// work.
		if err != nil && d.v2 && d.trees[""] == d.home && d.moveAside() == nil {
			err = d.tryGroup()
		}
		if err == nil {
			return d, nil
		}
		if s := strings.ReplaceAll(err.Error(), "\n", ", "); !slices.Contains(why, s) {
			why = append(why, s)
		}
	}
	if len(why) == 0 {
		return nil, errors.New("no cgroup file system with memory, pids and cpu is mounted")
	}
	return nil, errors.New(strings.Join(why, "; "))
}

func mkdir(dir string) error { return os.Mkdir(dir, 0o755) }

// delegated reports whether systemd delegated a group (Delegate=yes). In any other
// group it may take the controllers back at any time, and with them the limits. The
// systemd of a user does not write that down, so it is asked.
func delegated(dir string) bool {
	written := func(dir string) bool {
		var b [1]byte
		n, err := unix.Getxattr(dir, "user.delegate", b[:])
		return err == nil && n == 1 && b[0] == '1'
	}
	if written(dir) {
		return true
	}
	// A delegated group above belongs to the systemd of the user, which keeps its own list.
	for at := filepath.Dir(dir); len(at) > 1; at = filepath.Dir(at) {
		if written(at) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			answer, err := exec.CommandContext(ctx, "systemctl", "--user", "show", "--property=Delegate", "--value", "--", filepath.Base(dir)).Output()
			return err == nil && strings.TrimSpace(string(answer)) == "yes"
		}
	}
	return false
}

// checkAround returns an error if a limit of this process would not hold for a group
// made by d. Such a limit is meant for everything that this process starts.
func (d *Driver) checkAround() error {
	for _, dir := range d.around {
		// The number of processes is missing here, because processBound passes that limit on.
		for _, file := range []string{"memory.max", "memory.high", "memory.swap.max", "cpu.max", "cpuset.cpus", "io.max"} {
			b, _ := os.ReadFile(filepath.Join(dir, file)) // a file that does not exist limits nothing
			if f := strings.Fields(string(b)); len(f) > 0 && f[0] != "max" {
				return fmt.Errorf("%s of %s is %s, and would not hold for a group outside of that", file, filepath.Base(dir), strings.Join(f, " "))
			}
		}
	}
	return nil
}

// processBound returns how many processes the groups around allow; 0: any number.
// Every unit of systemd has such a limit, so a group made elsewhere gets it too.
func (d *Driver) processBound() (most int64) {
	for _, dir := range d.around {
		b, _ := os.ReadFile(filepath.Join(dir, "pids.max"))
		// "max" is no number and no bound.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && (most == 0 || n < most) {
			most = n
		}
	}
	return most
}

// moveAside moves this process into a group below its own, because a group with a
// process in it limits no group below. It does so only if the process is alone
// there and may divide the group.
func (d *Driver) moveAside() error {
	b, err := os.ReadFile(d.home + "/cgroup.procs")
	if err != nil {
		return err
	}
	self := strconv.Itoa(os.Getpid())
	if strings.TrimSpace(string(b)) != self || !d.delegated(d.home) {
		return errors.New("it is not for this process alone")
	}
	to := d.home + "/kern"
	if err := d.mkdir(to); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.WriteFile(to+"/cgroup.procs", []byte(self), 0); err != nil {
		return err
	}
	d.home = to
	return nil
}

// candidates are the drivers to try, best first. The best is below what the caller
// names. The next is where this process is, so that its own limits hold too. Then
// come the group beside it on v2, and the top; checkAround rejects them if they
// would escape a limit.
func candidates(mountinfo, own, below string) (all []*Driver) {
	at := map[string]string{} // controller or "" to mount point
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup2":
			at[""] = f[4]
		case "cgroup":
			for c := range strings.SplitSeq(g[2], ",") {
				at[c] = f[4]
			}
		}
	}
	path := map[string]string{}
	for line := range strings.Lines(own) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				path[c] = f[2]
			}
		}
	}
	add := func(v2 bool, keys []string, where func(string) string) {
		d := &Driver{v2: v2, mkdir: mkdir, rmdir: unix.Rmdir, delegated: delegated, home: filepath.Join(at[""], path[""]), trees: map[string]string{}}
		for _, k := range keys {
			if at[k] == "" {
				return
			}
			d.trees[k] = filepath.Join(at[k], where(k))
		}
		// These groups contain this process but not the new group, so their limits would be lost.
		for dir := d.home; v2 && below == "" && strings.HasPrefix(dir, d.trees[""]+"/"); dir = filepath.Dir(dir) {
			d.around = append(d.around, dir)
		}
		all = append(all, d)
	}
	// v1 comes first, because on a host with both versions it has the controllers.
	for _, v := range []struct {
		v2   bool
		keys []string
	}{{false, controllers}, {true, []string{""}}} {
		if below != "" {
			add(v.v2, v.keys, func(string) string { return below })
			continue
		}
		add(v.v2, v.keys, func(k string) string { return path[k] })
		if beside := filepath.Dir(path[""]); v.v2 && len(beside) > 1 {
			add(v.v2, v.keys, func(string) string { return beside })
		}
		add(v.v2, v.keys, func(string) string { return "" })
	}
	return all
}

// tryGroup makes a group, limits it and removes it.
func (d *Driver) tryGroup() error {
	g, err := d.Make()
	if err != nil {
		return err
	}
	return errors.Join(g.Limit(32<<20, 8), g.Remove())
}

// Make makes a group for one run.
func (d *Driver) Make() (*Group, error) {
	g := &Group{
		name:         fmt.Sprintf("%s%s-%d", groupPrefix, d.owner, groupCount.Add(1)),
		v2:           d.v2,
		home:         d.home,
		maxProcesses: d.processBound(),
		mkdir:        d.mkdir,
		rmdir:        d.rmdir,
		dirs:         map[string]string{},
		meter:        map[string]*os.File{},
	}
	if err := g.create(d.trees); err != nil {
		// A group that is half made must not stay behind.
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

func (g *Group) create(trees map[string]string) error {
	for c, tree := range trees {
		if g.v2 {
			// This fails if they are on and cannot be changed; controlled finds out.
			os.WriteFile(tree+"/cgroup.subtree_control", []byte("+memory +pids"), 0)
		}
		dir := filepath.Join(tree, g.name)
		if err := g.mkdir(dir); err != nil {
			return err
		}
		g.dirs[c] = dir
	}
	if g.v2 {
		if err := g.controlled(); err != nil {
			return err
		}
		// Out of memory, the kernel kills the whole group. A program without one of its processes could hang.
		if err := os.WriteFile(g.dirs[""]+"/memory.oom.group", []byte("1"), 0); err != nil {
			return err
		}
		if g.maxProcesses > 0 {
			if err := set(g.dirs[""]+"/pids.max", g.maxProcesses); err != nil {
				return err
			}
		}
	} else {
		for _, dir := range g.dirs {
			// The files are opened here, because the thread that writes them sees another root.
			f, err := os.OpenFile(dir+"/tasks", os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			g.tasks = append(g.tasks, f)
		}
	}
	for what, file := range g.meters() {
		f, err := os.Open(file)
		if err != nil {
			if what == "peak" && errors.Is(err, os.ErrNotExist) {
				continue // older than the counter
			}
			return err
		}
		g.meter[what] = f
	}
	return nil
}

// controlled returns an error if a group of v2 has no controllers: its parent has
// none, or a process in the parent keeps them there.
func (g *Group) controlled() error {
	b, err := os.ReadFile(g.dirs[""] + "/cgroup.controllers")
	if err != nil {
		return err
	}
	have := strings.Fields(string(b))
	for _, c := range []string{"memory", "pids"} {
		if !slices.Contains(have, c) {
			return fmt.Errorf("%s gives a group below it no controller %s: it has none, or processes of its own", filepath.Dir(g.dirs[""]), c)
		}
	}
	return nil
}

func (g *Group) meters() map[string]string {
	if g.v2 {
		d := g.dirs[""]
		return map[string]string{"cpu": d + "/cpu.stat", "peak": d + "/memory.peak", "oom": d + "/memory.events", "pids": d + "/pids.events"}
	}
	return map[string]string{
		"cpu":  g.dirs["cpuacct"] + "/cpuacct.usage",
		"peak": g.dirs["memory"] + "/memory.max_usage_in_bytes",
		"oom":  g.dirs["memory"] + "/memory.oom_control",
		"pids": g.dirs["pids"] + "/pids.events",
	}
}

// Limit sets the limits and reads them back, because the kernel may round them, and
// may ignore a file.
func (g *Group) Limit(memory int64, processes int) error {
	if err := g.limitMemory(memory); err != nil {
		return err
	}
	return g.LimitProcesses(processes)
}

func (g *Group) limitMemory(memory int64) error {
	page := int64(os.Getpagesize())
	memory = max(memory/page, 1) * page
	m := "memory"
	files := []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	if g.v2 {
		m, files = "", []string{"memory.max", "memory.swap.max"}
	}
	// The order matters on v1: memory and swap together may never be less than memory alone.
	if err := set(g.dirs[m]+"/"+files[0], memory); err != nil {
		return err
	}
	swap := memory
	if g.v2 {
		swap = 0
	}
	// The file is missing if the kernel does not count swap, or has none.
	if err := set(g.dirs[m]+"/"+files[1], swap); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// LimitProcesses sets how many processes and threads there may be.
func (g *Group) LimitProcesses(n int) error {
	dir := g.dirs["pids"]
	if g.v2 {
		dir = g.dirs[""]
	}
	if g.maxProcesses > 0 {
		n = int(min(int64(n), g.maxProcesses))
	}
	return set(dir+"/pids.max", int64(n))
}

// Helpers returns the number of init's threads in the group while the program starts.
func (g *Group) Helpers() int {
	if g.v2 {
		return 32
	}
	return 1
}

func set(file string, v int64) error {
	if err := os.WriteFile(file, []byte(strconv.FormatInt(v, 10)), 0); err != nil {
		return err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(b)); got != strconv.FormatInt(v, 10) {
		return fmt.Errorf("%s: want %d, the kernel says %q", file, v, got)
	}
	return nil
}

// Readings are a group's counters.
type Readings struct {
	CPU     time.Duration
	Peak    int64
	OOM     int64 // processes killed because memory was used up
	Full    int64 // times that the group itself was full, and not one around it
	Refused int64 // forks refused
}

// Read reads the counters.
func (g *Group) Read() (r Readings, err error) {
	var buf [4096]byte
	get := func(what, key string) int64 {
		f := g.meter[what]
		if f == nil {
			return 0
		}
		// Reading at 0 again gives new numbers without opening the file again.
		n, e := unix.Pread(int(f.Fd()), buf[:], 0)
		if e != nil {
			err = &os.PathError{Op: "read", Path: f.Name(), Err: e}
			return 0
		}
		return value(string(buf[:n]), key)
	}
	if g.v2 {
		r.CPU = time.Duration(get("cpu", "usage_usec")) * time.Microsecond
	} else {
		r.CPU = time.Duration(get("cpu", ""))
	}
	r.Peak = get("peak", "")
	r.OOM = get("oom", "oom_kill")
	r.Full = r.OOM
	if g.v2 {
		r.Full = get("oom", "oom")
	}
	r.Refused = get("pids", "max")
	return r, err
}

// value returns the number in the line with this key, or in the only line.
func value(text, key string) int64 {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 1 && key == "" || len(f) == 2 && f[0] == key {
			v, _ := strconv.ParseInt(f[len(f)-1], 10, 64)
			return v
		}
	}
	return 0
}

// Enter moves a whole process into the group (v2).
func (g *Group) Enter(pid int) error {
	return os.WriteFile(g.dirs[""]+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0)
}

// Leave moves a process back to the group of this one.
func (g *Group) Leave(pid int) error {
	return os.WriteFile(g.home+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0)
}

// Remove removes the group. Everything in it has ended or is ending.
func (g *Group) Remove() error {
	for _, f := range g.tasks {
		f.Close()
	}
	for _, f := range g.meter {
		f.Close()
	}
	var errs []error
	for _, dir := range g.dirs {
		errs = append(errs, removeGroup(dir, g.rmdir, removeDeadline()))
	}
	return errors.Join(errs...)
}

// removeDeadline is how long removeGroup waits for killed processes.
func removeDeadline() time.Time { return time.Now().Add(2 * time.Second) }

// removeGroup removes a group, with the groups that were made in it. A killed
// process stays in its group until it is gone, and v1 has no event for that.
func removeGroup(dir string, rmdir func(string) error, deadline time.Time) error {
	for wait := 50 * time.Microsecond; ; wait *= 2 {
		err := rmdir(dir)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY || time.Now().After(deadline) {
			return &os.PathError{Op: "remove cgroup", Path: dir, Err: err}
		}
		below, _ := os.ReadDir(dir)
		for _, e := range below {
			// A program may have made groups of its own, and a group with others in it cannot be removed.
			if e.IsDir() {
				emptyGroup(dir + "/" + e.Name())
				_ = removeGroup(dir+"/"+e.Name(), rmdir, deadline) // if it stays, so does dir
			}
		}
		time.Sleep(wait)
	}
}

// ownerName names a process so that it differs from every later one.
func ownerName(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// A program chooses its name, which may hold brackets and spaces. Only the last bracket ends it.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return "", fmt.Errorf("/proc/%d/stat: want a start time, got %q", pid, b)
	}
	return fmt.Sprintf("%d-%s", pid, f[19]), nil
}

// Sweep removes the groups that killed supervisors left.
func (d *Driver) Sweep() error {
	var errs []error
	for _, tree := range d.trees {
		entries, err := os.ReadDir(tree)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, e := range entries {
			owner, ok := strings.CutPrefix(e.Name(), groupPrefix)
			i := strings.LastIndexByte(owner, '-')
			// Pid and start time name one process for ever, so a later process with the same pid is not mistaken
			// for the owner.
			if !ok || !e.IsDir() || i < 0 || alive(owner[:i]) {
				continue
			}
			dir := filepath.Join(tree, e.Name())
			emptyGroup(dir)
			errs = append(errs, removeGroup(dir, d.rmdir, removeDeadline()))
		}
	}
	return errors.Join(errs...)
}

func alive(owner string) bool {
	pid, err := strconv.Atoi(strings.SplitN(owner, "-", 2)[0])
	if err != nil {
		return true // the name is not one of ours
	}
	now, err := ownerName(pid)
	return err == nil && now == owner
}

// emptyGroup kills every process in a group. On v2 the kernel may do it in one step.
// Otherwise emptyGroup repeats until no process is left that could fork.
func emptyGroup(dir string) {
	if os.WriteFile(dir+"/cgroup.kill", []byte("1"), 0) == nil {
		return
	}
	for range 100 {
		b, err := os.ReadFile(dir + "/cgroup.procs")
		pids := strings.Fields(string(b))
		if err != nil || len(pids) == 0 {
			return
		}
		for _, s := range pids {
			if pid, err := strconv.Atoi(s); err == nil && pid > 1 {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		time.Sleep(time.Millisecond)
	}
}
