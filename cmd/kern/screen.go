package main

import (
	"io"
	"os"
	"strconv"

	"github.com/kern-run/kern/internal/cli"
)

// A terminal that says that it has fewer columns than narrowest does not know.
// usual is taken for it, and for help that goes into a pipe.
const (
	narrowest = 20
	usual     = 80
)

// width is how many columns the terminal behind w has. It is 0 where there is
// none: what a program reads is neither shortened nor wrapped.
func width(a *app, tty bool, w io.Writer) int {
	if !tty {
		return 0
	}
	if n, err := strconv.Atoi(a.getenv("COLUMNS")); err == nil && n >= narrowest {
		return n
	}
	if f, ok := w.(*os.File); ok {
		if n := columnsOf(f); n >= narrowest {
			return n
		}
	}
	return usual
}

// table and facts print what is laid out for the terminal.

func table(a *app, columns []cli.Column, rows [][]string) error {
	return a.print("%s", cli.Table(columns, rows, width(a, a.outTTY, a.stdout)))
}

func facts(a *app, rows [][]string) error {
	return a.print("%s", cli.Facts(rows, width(a, a.outTTY, a.stdout)))
}
