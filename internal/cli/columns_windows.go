package cli

import (
	"os"

	"golang.org/x/sys/windows"
)

// columnsOf is the width of a console; 0 if the console does not know it.
func columnsOf(f *os.File) int {
	var i windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &i) != nil {
		return 0
	}
	return int(i.Window.Right-i.Window.Left) + 1
}
