package journaltest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
	"github.com/onlyonce-go/onlyonce/onceclient/journaltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sabotaged is a journal with one fault.
type sabotaged struct {
	onceclient.Journal
	begin   func(j onceclient.Journal, e onceclient.Entry) (onceclient.Entry, bool, error)
	lock    func(j onceclient.Journal, intent string) (onceclient.Lock, onceclient.Entry, error)
	save    func(l onceclient.Lock, e onceclient.Entry) error
	pending func(j onceclient.Journal, after string, limit int) ([]string, error)
	prune   func(j onceclient.Journal, before time.Time, limit int) (int, error)
}

func (s *sabotaged) Begin(ctx context.Context, e onceclient.Entry) (onceclient.Entry, bool, error) {
	if s.begin != nil {
		return s.begin(s.Journal, e)
	}
	return s.Journal.Begin(ctx, e)
}

func (s *sabotaged) Lock(ctx context.Context, intent string) (onceclient.Lock, onceclient.Entry, error) {
	if s.lock != nil {
		return s.lock(s.Journal, intent)
	}
	l, e, err := s.Journal.Lock(ctx, intent)
	if err == nil && s.save != nil {
		l = &sabotagedLock{l, s.save}
	}
	return l, e, err
}

func (s *sabotaged) Pending(ctx context.Context, after string, limit int) ([]string, error) {
	if s.pending != nil {
		return s.pending(s.Journal, after, limit)
	}
	return s.Journal.Pending(ctx, after, limit)
}

func (s *sabotaged) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	if s.prune != nil {
		return s.prune(s.Journal, before, limit)
	}
	return s.Journal.Prune(ctx, before, limit)
}

type sabotagedLock struct {
	onceclient.Lock
	save func(l onceclient.Lock, e onceclient.Entry) error
}

func (l *sabotagedLock) Save(_ context.Context, e onceclient.Entry) error { return l.save(l.Lock, e) }

// noLock locks nothing.
type noLock struct {
	onceclient.Lock
	j onceclient.Journal
}

func (l noLock) Save(ctx context.Context, e onceclient.Entry) error {
	held, _, err := l.j.Lock(ctx, e.Intent)
	if err != nil {
		return err
	}
	defer held.Unlock()
	return held.Save(ctx, e)
}

func (noLock) Unlock() error { return nil }

// fault is a journal that is broken, and the rule that must notice.
type fault struct {
	rule string
	sabotaged
}

func sabotages() map[string]fault {
	ctx := context.Background()
	// kept begins an entry that somebody has changed.
	kept := func(rule string, change func(e *onceclient.Entry)) fault {
		return fault{rule, sabotaged{begin: func(j onceclient.Journal, e onceclient.Entry) (onceclient.Entry, bool, error) {
			change(&e)
			return j.Begin(ctx, e)
		}}}
	}
	// saved saves an entry that somebody has changed.
	saved := func(rule string, change func(e *onceclient.Entry)) fault {
		return fault{rule, sabotaged{save: func(l onceclient.Lock, e onceclient.Entry) error {
			change(&e)
			return l.Save(ctx, e)
		}}}
	}
	return map[string]fault{
		"drops headers":         kept("L1_an_entry_comes_back_as_it_was_begun", func(e *onceclient.Entry) { e.Header = nil }),
		"forgets an attempt":    kept("L1_an_entry_comes_back_as_it_was_begun", func(e *onceclient.Entry) { e.Attempts = 0 }),
		"takes a body for text": kept("L1_a_body_is_a_body", func(e *onceclient.Entry) { e.Body = []byte(strings.ToValidUTF8(string(e.Body), "?")) }),
		"folds case":            kept("K_intents_are_compared_byte_by_byte", func(e *onceclient.Entry) { e.Intent = strings.ToLower(e.Intent) }),
		"cuts intents":          kept("K_what_is_no_entry_is_refused", func(e *onceclient.Entry) { e.Intent = e.Intent[:min(len(e.Intent), 255)] }),
		"forgets when it was":   kept("L1_pending_are_the_open_ones_oldest_first", func(e *onceclient.Entry) { e.CreatedAt = time.Unix(0, 0) }),
		"leaves no state": kept("L1_no_state_means_open", func(e *onceclient.Entry) {
			if e.State == "" {
				e.State = onceclient.NotSent
			}
		}),
		"saves no attempt":       saved("L1_a_save_is_seen_by_all", func(e *onceclient.Entry) { e.Attempts = 0 }),
		"drops answers":          saved("L1_a_save_is_seen_by_all", func(e *onceclient.Entry) { e.Answer = nil }),
		"never opens anew":       saved("L1_an_entry_can_be_opened_anew", func(e *onceclient.Entry) { e.State = onceclient.NotSent }),
		"opens what has ended":   saved("T_pruned_is_what_ended_before", func(e *onceclient.Entry) { e.State = onceclient.Open }),
		"ends what has no end":   saved("T_open_and_locked_entries_are_never_pruned", func(e *onceclient.Entry) { e.State, e.EndedAt = onceclient.Answered, time.Unix(1, 0) }),
		"takes the later key":    {"L1_an_intent_has_one_entry", sabotaged{begin: takesTheLaterKey}},
		"checks and then acts":   {"L1_of_several_that_begin_one_makes_it", sabotaged{begin: alwaysMade}},
		"locks nothing":          {"L1_one_at_a_time_works_on_an_entry", sabotaged{lock: locksNothing}},
		"locks nothing at all":   {"L1_many_work_one_after_the_other", sabotaged{lock: locksNothing}},
		"saves without the lock": {"C6_who_has_let_go_saves_nothing", sabotaged{lock: locksNothing}},
		"locks what is not":      {"L1_what_there_is_no_entry_of_is_not_locked", sabotaged{lock: locksNothing}},
		"ignores contexts": {"L3_a_context_that_has_ended_ends_the_call", sabotaged{
			pending: func(j onceclient.Journal, after string, limit int) ([]string, error) {
				return j.Pending(ctx, after, limit)
			},
		}},
		"leaves out a page": {"L1_pages_leave_nothing_out", sabotaged{
			pending: func(j onceclient.Journal, after string, limit int) ([]string, error) {
				intents, err := j.Pending(ctx, after, limit+1)
				return intents[min(len(intents), 1):], err
			},
		}},
		"knows no place that is gone": {"L1_a_page_behind_what_is_gone_begins_anew", sabotaged{
			pending: func(j onceclient.Journal, after string, limit int) ([]string, error) {
				if after != "" {
					return nil, nil
				}
				return j.Pending(ctx, after, limit)
			},
		}},
	}
}

func takesTheLaterKey(j onceclient.Journal, e onceclient.Entry) (onceclient.Entry, bool, error) {
	stands, made, err := j.Begin(context.Background(), e)
	stands.Key = e.Key
	return stands, made, err
}

func alwaysMade(j onceclient.Journal, e onceclient.Entry) (onceclient.Entry, bool, error) {
	_, _, err := j.Begin(context.Background(), e)
	return e, true, err
}

func locksNothing(j onceclient.Journal, intent string) (onceclient.Lock, onceclient.Entry, error) {
	e, _, err := j.Begin(context.Background(), onceclient.Entry{Intent: intent, Key: "k", CreatedAt: time.Unix(0, 0)})
	return noLock{j: j}, e, err
}

const sabotageEnv = "ONLYONCE_TEST_SABOTAGED_JOURNAL"

// TestSabotagedJournal is run by TestSuiteCatches in a process of its own.
func TestSabotagedJournal(t *testing.T) {
	broken, ok := sabotages()[os.Getenv(sabotageEnv)]
	if !ok {
		t.Skip("runs only as the victim of TestSuiteCatches")
	}
	journaltest.Run(t, func(t *testing.T) onceclient.Journal {
		t.Helper()
		j, err := filejournal.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s := broken.sabotaged
		s.Journal = j
		return &s
	})
}

// The suite must fail on a journal that breaks a rule, and name the rule.
func TestSuiteCatches(t *testing.T) {
	t.Parallel()
	for name, broken := range sabotages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSabotagedJournal$/^"+broken.rule+"$", "-test.v")
			cmd.Env = append(os.Environ(), sabotageEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passed a journal that %s", name)
			}
			if want := "--- FAIL: TestSabotagedJournal/" + broken.rule; !strings.Contains(string(out), want) || !strings.Contains(string(out), "BROKEN RULE") {
				t.Errorf("the suite failed without naming %s:\n%s", broken.rule, out)
			}
		})
	}
}
