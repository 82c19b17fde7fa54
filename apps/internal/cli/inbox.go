package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// inboxCmd is the operators' view of messages that consumers have parked, in any store of
// the library's that can keep them.
type inboxCmd struct {
	List  inboxListCmd  `cmd:"" help:"List messages that are parked, or wait for their next try."`
	Show  inboxShowCmd  `cmd:"" help:"Show one message, why it is parked and what was done about it, or print its payload."`
	Retry inboxRetryCmd `cmd:"" help:"Ask the consumer to try a parked message again."`
	Drop  inboxDropCmd  `cmd:"" help:"Say that a parked message is not to be handled any more."`
}

// messageView is a message as it is printed. Of its payload, which may hold anything,
// only length and digest are.
type messageView struct {
	Consumer      string            `json:"consumer"`
	ID            string            `json:"id,omitempty"`
	Key           string            `json:"key"`
	Operation     string            `json:"operation"`
	State         string            `json:"state"`
	Reason        string            `json:"reason,omitempty"`
	Error         string            `json:"error,omitempty"`
	Kept          bool              `json:"kept"`
	OtherPayload  bool              `json:"other_payload"`
	Waits         bool              `json:"waits"`
	RetryAsked    bool              `json:"retry_asked"`
	Dropped       bool              `json:"dropped"`
	Attributes    map[string]string `json:"attributes,omitempty"`
	PayloadBytes  int               `json:"payload_bytes"`
	PayloadSHA256 string            `json:"payload_sha256,omitempty"`
	CreatedAt     time.Time         `json:"created_at"`
	CompletedAt   *time.Time        `json:"completed_at,omitempty"`
	ExpiresAt     *time.Time        `json:"expires_at,omitempty"`
	Audit         []auditView       `json:"audit,omitempty"`
}

func viewOfMessage(e inbox.Entry) messageView {
	rec := e.Record
	v := messageView{
		Consumer: e.Consumer, ID: e.Message.ID, Key: rec.Key.Value, Operation: rec.Key.Operation(),
		State: stateOf(e), Reason: strings.TrimPrefix(rec.Reason, onlyonce.ReasonHeld), Error: e.Error,
		Kept: e.Kept, OtherPayload: e.OtherPayload, Waits: e.Waits, RetryAsked: e.RetryAsked, Dropped: e.Dropped,
		Attributes: e.Message.Attributes, PayloadBytes: len(e.Message.Payload),
		CreatedAt: rec.CreatedAt.UTC(), CompletedAt: set(rec.CompletedAt), ExpiresAt: set(rec.ExpiresAt),
	}
	if e.Kept {
		sum := sha256.Sum256(e.Message.Payload)
		v.PayloadSHA256 = hex.EncodeToString(sum[:])
	}
	for _, a := range e.Audit {
		v.Audit = append(v.Audit, auditView{At: a.At.UTC(), Actor: a.Actor, Action: a.Action, Reason: a.Reason})
	}
	return v
}

// stateOf is how a message stands, in the words of an inbox.
func stateOf(e inbox.Entry) string {
	switch {
	case e.Dropped:
		return "dropped"
	case e.Record.State == onlyonce.Completed:
		return "handled"
	case e.Record.State == onlyonce.InProgress:
		return "running"
	case e.Record.State == onlyonce.FailedRetryable:
		return "failed"
	case e.RetryAsked:
		return "retrying"
	case e.Waits:
		return "waiting"
	case e.Kept:
		return "parked"
	default:
		return "in doubt"
	}
}

// plain is a text that does nothing to a terminal.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// messageFlag names one message.
type messageFlag struct {
	keysFlag
	ID       string `arg:"" help:"The message's id, or its key as list prints it."`
	Consumer string `required:"" help:"Whose message it is."`
}

// actFlag is what a person says about a message.
type actFlag struct {
	messageFlag
	Actor string `env:"ONLYONCE_ACTOR,USER" help:"Who says so. Default: the user of this session."`
	JSON  bool   `name:"json" env:"-" help:"Print the message as JSON."`
}

func (a actFlag) act(reason string) (inbox.Act, error) {
	if a.Actor == "" {
		return inbox.Act{}, &usageError{"--actor is required: this session names no user", "say who it is: --actor NAME"}
	}
	return inbox.Act{Consumer: a.Consumer, ID: a.ID, Actor: a.Actor, Reason: reason}, nil
}

// inboxes refuses a store that no inbox can use.
func (o opened) inboxes() error {
	if f := o.Features(); !f.Recovery || !f.Operators {
		return &usageError{"--store: a store of the kind " + o.Kind + " keeps no messages", "name the store that the consumer uses"}
	}
	return nil
}
