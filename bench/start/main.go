// Command start measures the times that a user waits first: the start of the daemon,
// and a command with a running daemon. It also prints the size of the program.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

const rounds = 21

func main() {
	dir, err := os.MkdirTemp("", "kern-bench-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "kern")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "./cmd/kern")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		log.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(bin)
	if err != nil {
		log.Fatal(err)
	}
	run := func(data string, args ...string) time.Duration {
		cmd := exec.Command(bin, args...)
		cmd.Env = append(os.Environ(), "KERN_DATA="+data)
		start := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			log.Fatalf("kern %v: %v: %s", args, err, out)
		}
		return time.Since(start)
	}
	var bare, cold, warm []time.Duration
	for i := range rounds {
		data := filepath.Join(dir, fmt.Sprint(i))
		bare = append(bare, run(data, "version"))
		cold = append(cold, run(data, "ps"))
		warm = append(warm, run(data, "ps"))
		run(data, "stop-daemon")
	}
	fmt.Printf("%-44s %10s %10s %8s %10s\n", "what", "measured", "baseline", "ratio", "aim")
	row := func(what string, d, base []time.Duration, aim string) {
		m, b := median(d), median(base)
		fmt.Printf("%-44s %10s %10s %8.2f %10s\n", what, m.Round(10*time.Microsecond), b.Round(10*time.Microsecond), float64(m)/float64(b), aim)
	}
	row("kern ps, daemon started from nothing", cold, bare, "<= 30ms")
	row("kern ps, daemon there", warm, bare, "")
	fmt.Printf("%-44s %7.1f MB %10s %8s %10s\n", "the program, stripped", float64(info.Size())/1e6, "", "", "<= 37 MB")
	fmt.Println("baseline: kern version, the start of the program alone; medians of", rounds)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
