package memjournal_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/journaltest"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRules(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(*testing.T) onceclient.Journal { return memjournal.New() })
}

func TestRulesForSeveral(t *testing.T) {
	t.Parallel()
	journaltest.RunShared(t, func(*testing.T) func() onceclient.Journal {
		j := memjournal.New()
		return func() onceclient.Journal { return j }
	})
}
