package kern_test

import (
	"testing"

	"github.com/kern-run/kern"
	"github.com/kern-run/kern/internal/leaktest"
)

func TestMain(m *testing.M) {
	kern.Main()
	leaktest.Main(m)
}
