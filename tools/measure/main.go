// Command measure prints the shape of Go modules side by side: size, functions,
// names, comments, depth and the largest types.
//
//	go run ./tools/measure DIR [DIR ...]
package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kern-run/kern/tools/shape"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: measure DIR [DIR ...]")
		os.Exit(2)
	}
	for _, dir := range os.Args[1:] {
		if err := measure(dir); err != nil {
			fmt.Fprintln(os.Stderr, "measure:", err)
			os.Exit(1)
		}
	}
}

func measure(dir string) error {
	module, err := modulePath(dir)
	if err != nil {
		return err
	}
	c, err := shape.Read(dir, module)
	if err != nil {
		return err
	}
	fmt.Printf("== %s\n", module)
	depth, chain := c.Depth(func(string) bool { return true })
	lines, shared, single, letters, comments, total := functions(c)
	at := func(p int) int { return lines[min(len(lines)*p/100, len(lines)-1)] }
	fmt.Printf("%-44s %d / %d\n", "lines without tests / packages", c.Lines, c.Packages)
	fmt.Printf("%-44s %d / %d / %d / %d of %d\n", "lines of a function p50 / p90 / p99 / max", at(50), at(90), at(99), lines[len(lines)-1], len(lines))
	fmt.Printf("%-44s %d\n", "letters of a function's name, median", letters)
	fmt.Printf("%-44s %d %%\n", "names of one word", single)
	fmt.Printf("%-44s %d %%\n", "names that three or more others have", shared)
	fmt.Printf("%-44s %.1f\n", "comment lines for 100 lines of a body", 100*float64(comments)/float64(max(total, 1)))
	fmt.Printf("%-44s %d %%\n", "comment lines to code", 100*c.Prose/max(c.Pure, 1))
	fmt.Printf("%-44s %d %%\n", "tests to source", 100*c.Tests/max(c.Lines, 1))
	fmt.Printf("%-44s %d\n", "examples", c.Examples)
	fmt.Printf("%-44s %d (%s)\n", "import depth", depth, strings.Join(chain, " > "))
	fmt.Println("largest types: methods with promoted ones and functions that take the type first (declared), fields")
	for i, t := range c.Types {
		if i == 10 {
			break
		}
		fmt.Printf("  %4d (%d) %4d  %s.%s\n", t.Methods, t.Declared, t.Fields, t.Dir, t.Name)
	}
	// Sorted again: the list above is by methods.
	slices.SortStableFunc(c.Types, func(a, b shape.Type) int { return cmp.Compare(b.Fields, a.Fields) })
	fmt.Println("most fields")
	for i, t := range c.Types {
		if i == 5 {
			break
		}
		fmt.Printf("  %4d  %s.%s\n", t.Fields, t.Dir, t.Name)
	}
	return nil
}

// functions are figures over all functions: their lines, sorted; shares in
// percent; the median of letters; lines of comments and of all in bodies.
func functions(c *shape.Code) (lines []int, shared, single, letters, comments, total int) {
	count := map[string]int{}
	var sizes []int
	for _, f := range c.Funcs {
		count[f.Name]++
	}
	for _, f := range c.Funcs {
		lines = append(lines, f.Lines)
		sizes = append(sizes, utf8.RuneCountInString(f.Name))
		comments, total = comments+f.Comments, total+f.Lines
		if len(shape.Words(f.Name)) == 1 {
			single++
		}
		if count[f.Name] > 3 {
			shared++
		}
	}
	slices.Sort(lines)
	slices.Sort(sizes)
	// A module without functions must not divide by zero.
	n := max(len(lines), 1)
	return lines, 100 * shared / n, 100 * single / n, sizes[len(sizes)/2], comments, total
}

func modulePath(dir string) (string, error) {
	f, err := os.Open(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if m, ok := strings.CutPrefix(s.Text(), "module "); ok {
			return strings.TrimSpace(m), nil
		}
	}
	return "", fmt.Errorf("%s: go.mod names no module", dir)
}
