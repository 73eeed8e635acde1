package wal

import (
	"testing"

	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestZerosAreNoRecord(t *testing.T) {
	for i := range 100 {
		if _, n := readFrame[string](make([]byte, i)); n > 0 {
			t.Fatalf("%d zeros read as a record", i)
		}
	}
}
