package cli_test

import (
	"context"
	"errors"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// consume is a consumer on the store test.db for the script: it processes a message, whose
// handler fails or not, or gives those that were marked another try:
// consume CONSUMER (ID PAYLOAD | retries) (ok | ERROR) VERDICT|COUNT.
func consume(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	url := "sqlite:" + ts.MkAbs("test.db")
	ts.Check(keystore.Migrate(ctx, url))
	store, err := keystore.Open(ctx, url)
	ts.Check(err)
	defer store.Close()
	engine, err := onlyonce.New(store.Store, onlyonce.Config{})
	ts.Check(err)
	defer engine.Close(ctx)
	in, err := inbox.New(engine, inbox.Config{Consumer: args[0], MaxTries: 1})
	ts.Check(err)
	handler := func(context.Context, inbox.Message) error {
		if how := args[len(args)-2]; how != "ok" {
			return errors.New(how)
		}
		return nil
	}
	got, want := "", args[len(args)-1]
	if args[1] == "retries" {
		sum, err := in.Recoverer(handler).Once(ctx)
		ts.Check(err)
		got = "nothing"
		if sum.Completed > 0 {
			got = "completed"
		}
	} else {
		msg := inbox.Message{ID: args[1], Payload: []byte(args[2]), Attributes: map[string]string{"topic": "charges\x1b[31m"}}
		verdict, _ := in.Process(ctx, msg, handler)
		got = verdict.String()
	}
	if got != want {
		ts.Fatalf("%q: %s, want %s", args, got, want)
	}
}
