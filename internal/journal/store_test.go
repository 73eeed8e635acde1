package journal_test

import (
	"testing"

	"github.com/kern-run/kern/internal/journal"
	"github.com/kern-run/kern/internal/journal/journaltest"
)

func TestConformance(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		journaltest.Conformance(t, func(t *testing.T) func() (journal.Store, journal.Lease, error) {
			dir := t.TempDir()
			return func() (journal.Store, journal.Lease, error) { return journal.OpenSQLite(dir) }
		})
	})
	t.Run("memory", func(t *testing.T) {
		journaltest.Conformance(t, func(*testing.T) func() (journal.Store, journal.Lease, error) {
			return journaltest.NewMemory().Open
		})
	})
}
