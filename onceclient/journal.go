package onceclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

// Entry is what a journal keeps of one operation: all that is needed to ask again
// with the same key and bytes.
type Entry struct {
	// Intent is the caller's name of the operation and the entry's identity: 1 to 255
	// bytes of printable UTF-8.
	Intent string
	// Key is the idempotency key of every attempt.
	Key string
	// Method and Target say what is asked of whom: an HTTP method and a URL, or
	// "GRPC" and a full method's name.
	Method, Target string
	// Header is sent with every attempt. Credentials are not in it: see
	// Config.Authorize.
	Header map[string][]string
	// Body is sent byte for byte with every attempt; empty and nil are the same.
	Body []byte
	// CreatedAt is when the entry was made, by the clock of the process that did. The
	// first byte left later than that.
	CreatedAt time.Time

	// State is where the operation stands.
	State State
	// Attempts counts those that were begun: an open entry without any was not sent, which
	// is a proof. One that Do begins counts its first already.
	Attempts int
	// Answer is the server's last word: of an entry that is Answered or Refused the
	// answer, of an open one what a failed attempt got; nil: it has said nothing.
	Answer *Answer
	// Note says in words why the last attempt was not the end of it.
	Note string
	// EndedAt is when the entry got its present State, if that is not Open.
	EndedAt time.Time
}

// Validate refuses what is no entry, with CodeInvalidRequest: whoever went on with it would
// send it without its key, or take for a proof what is none. Journals take and give no
// such entry.
func (e Entry) Validate() error {
	invalid := func(hint string) error {
		return &onlyonce.Error{Code: onlyonce.CodeInvalidRequest, Op: "check onceclient.Entry", Hint: hint}
	}
	switch {
	case e.Intent == "" || len(e.Intent) > 255 || !utf8.ValidString(e.Intent) || strings.Contains(e.Intent, "\x00"):
		return invalid("an intent has 1 to 255 bytes of printable UTF-8")
	case e.Key == "":
		return invalid("an entry has a key")
	case e.CreatedAt.IsZero():
		return invalid("an entry has the time when it was made")
	case !slices.Contains([]State{Open, Answered, Refused, NotSent}, e.State):
		return invalid(fmt.Sprintf("no entry has the state %q; it may be a later program's", e.State))
	case e.State == Answered && e.Answer == nil:
		return invalid("an entry that is answered has an answer")
	case e.Attempts < 0:
		return invalid("an entry has no fewer than 0 attempts")
	}
	return nil
}

// sound refuses an entry that a journal cannot have been given here.
func sound(e Entry, intent string) error {
	if e.Intent != intent {
		return fmt.Errorf("the entry of %q is of %q", intent, e.Intent)
	}
	if err := e.Validate(); err != nil {
		return fmt.Errorf("the entry of %q is none that this program has written: %w", intent, err)
	}
	return nil
}

// State is where an operation stands in the journal.
type State string

// The states of an entry.
const (
	// Open: it may have been sent, and has no answer. Resume goes on with it.
	Open State = "open"
	// Answered: the server's answer is recorded.
	Answered State = "answered"
	// Refused: the server has refused it for good.
	Refused State = "refused"
	// NotSent: it was given up before anything had left. Doing it again opens the
	// entry anew, under its key.
	NotSent State = "not_sent"
)

// Journal keeps operations from before their first byte leaves until they may be
// forgotten. Whatever a method has confirmed survives a crash of process and
// machine. Methods are safe for concurrent use by several processes, except where
// the implementation says otherwise. Package journaltest examines one.
type Journal interface {
	// Begin records an entry, unless there is one of the same intent: then that one
	// is returned as it stands, and made is false. Of several that begin one intent
	// at a time, one makes it. No state means Open. What is no entry (Entry.Validate)
	// is refused.
	Begin(ctx context.Context, entry Entry) (stands Entry, made bool, err error)
	// Lock makes the caller the one who works on an entry, until Unlock or until its
	// process has died, and reads the entry as it is then. It does not wait: ErrLocked
	// says that somebody else has it. ErrNoEntry: there is none.
	Lock(ctx context.Context, intent string) (Lock, Entry, error)
	// Pending lists the intents of open entries, locked ones too, oldest first, at
	// most limit behind the one named after; after "", or one that is gone, is the
	// beginning. With an error it lists those that could be read.
	Pending(ctx context.Context, after string, limit int) ([]string, error)
	// Prune deletes ended entries that ended before a time and are not locked, at
	// most limit, and says how many. Open entries are never deleted.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)
}

// Lock is the right to work on one entry. Its methods are not called concurrently.
type Lock interface {
	// Save records State, Attempts, Answer, Note and EndedAt; the rest of an entry
	// never changes. What is no entry (Entry.Validate) is refused. ErrLockLost: somebody
	// else has the entry now, and nothing was changed.
	Save(ctx context.Context, entry Entry) error
	// Unlock lets go. The entry stays as it was last saved. It may be called twice.
	Unlock() error
}

// What a journal answers that is no failure of it, for errors.Is.
var (
	// ErrLocked: another process, or another call in this one, works on the entry.
	ErrLocked = errors.New("somebody else is working on the operation")
	// ErrNoEntry: the journal has no entry of this intent.
	ErrNoEntry = errors.New("the journal has no such operation")
	// ErrLockLost: the lock was lost, because its holder seemed to have died.
	ErrLockLost = errors.New("somebody else works on the operation now")
)
