// Command prose prints what breaks the rules for prose, by file and line.
//
//	go run ./tools/prose [PATH ...]   only files whose path begins so
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/kern-run/kern/tools/shape"
)

func main() {
	faults, err := shape.ProseFaults(".", "github.com/kern-run/kern")
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
	shown := 0
	for _, f := range faults {
		if chosen(f) {
			fmt.Println(f)
			shown++
		}
	}
	if shown > 0 {
		os.Exit(1)
	}
}

func chosen(fault string) bool {
	for _, p := range os.Args[1:] {
		if strings.HasPrefix(fault, p) {
			return true
		}
	}
	return len(os.Args) == 1
}
