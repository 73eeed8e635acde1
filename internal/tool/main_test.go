package tool

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		Supervise()
	}
	os.Exit(m.Run())
}
