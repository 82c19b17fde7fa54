package inbox_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// B119, K3: an id is the key where it can be, and its SHA-256 where it cannot, or where it
// could be taken for another's.
func TestKeyOf(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("0", 32)
	for id, plain := range map[string]bool{
		"evt_1": true, "a b": true, strings.Repeat("x", 255): true, "m1#" + hash[1:]: true,
		strings.Repeat("x", 256): false, "ünï": false, "a\nb": false, "\xff": false,
		"sha256:1": false, "m1#" + hash: false,
	} {
		key := inbox.KeyOf("balances", id)
		if key.Scope != "inbox:balances" || (key.Value == id) != plain || (!plain && !strings.HasPrefix(key.Value, "sha256:")) {
			t.Errorf("%q: %q", id, key)
		}
	}
}

// B119: two ids never share a key, whatever they are.
func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	ids := rapid.OneOf(
		rapid.String(), rapid.StringMatching(`[ -~]{1,300}`), rapid.StringMatching(`sha256:[0-9a-f]{64}`), rapid.StringMatching(`m#[0-9a-f]{31,33}`),
		rapid.Map(rapid.StringMatching(`[ -~]{0,3}`), func(id string) string { return inbox.KeyOf("c", id).Value }),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := ids.Draw(t, "a"), ids.Draw(t, "b")
		one, other := inbox.KeyOf("c", a), inbox.KeyOf("c", b)
		if (a == b) != (one == other) {
			t.Fatalf("%q and %q have the keys %q and %q", a, b, one, other)
		}
		if err := one.Validate(); err != nil {
			t.Fatalf("%q: %v", a, err)
		}
	})
}

// K3, I3: messages with ids of any kind are handled, told apart by payload, and found by
// their ids.
func TestAnyID(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		for _, id := range []string{strings.Repeat("x", 240), strings.Repeat("x", 300), "\x00\xff", "sha256:x", "m#" + strings.Repeat("0", 32)} {
			p.wantVerdict(t, message(id, "5 EUR"), inbox.Handled)
			p.wantVerdict(t, message(id, "5 EUR"), inbox.Duplicate)
			p.wantVerdict(t, message(id, "6 EUR"), inbox.Parked)
			p.wantVerdict(t, message(id, "6 EUR"), inbox.Parked)
			if entry := p.show(t, id); entry.Record.State != onlyonce.Completed {
				t.Errorf("%q: %+v", id, entry)
			}
		}
		page, err := inbox.List(t.Context(), p.w.mem, "balances", "")
		if err != nil || len(page.Entries) != 5 {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, e := range page.Entries {
			if again := p.show(t, e.Record.Key.Value); again.Record.Key != e.Record.Key || again.Message.ID != e.Message.ID {
				t.Errorf("%+v is found as %+v", e, again)
			}
		}
	})
}

// A wrong configuration is refused, and says which field it is.
func TestConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for field, cfg := range map[string]inbox.Config{
		"Config.Consumer": {Consumer: strings.Repeat("x", 201)}, "Config.MaxTries": {Consumer: "c", MaxTries: -1},
		"Config.Pause": {Consumer: "c", Pause: 2, MaxPause: 1}, "Op.Lease": {Consumer: "c", Lease: 1},
		"Op.Retention": {Consumer: "c", Retention: -1}, "must name the consumer": {}, "1 to 200": {Consumer: "a\nb"},
	} {
		_, err := inbox.NewTx(w.engine, cfg)
		wantRefusal(t, err, field)
		_, err = inbox.New(w.engine.Engine, cfg)
		wantRefusal(t, err, field)
	}
	_, err := inbox.NewTx(w.engine, inbox.Config{Consumer: "c", Lease: onlyonce.DefaultLease, Deadline: onlyonce.DefaultLease})
	wantRefusal(t, err, "Op.Deadline")
	_, err = inbox.NewTx[*memstore.Tx](nil, w.cfg)
	wantRefusal(t, err, "engine")
	_, err = inbox.New(nil, w.cfg)
	wantRefusal(t, err, "engine")
	for _, lacks := range []func(*onlyonce.Features){
		func(f *onlyonce.Features) { f.Recovery = false }, func(f *onlyonce.Features) { f.Operators = false }, func(f *onlyonce.Features) { f.Steps = false },
	} {
		e, err := onlyonce.New(lacking{w.mem, lacks}, onlyonce.Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = inbox.New(e, w.cfg)
		wantRefusal(t, err, "engine")
		_, err = inbox.List(t.Context(), e.Store(), "", "")
		if f := e.Store().Features(); !f.Operators {
			wantRefusal(t, err, "keeps no audit")
		}
	}
}

func wantRefusal(t *testing.T, err error, says string) {
	t.Helper()
	wantCode(t, err, onlyonce.CodeConfig)
	if err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%v does not say %q", err, says)
	}
}

// lacking is a store without some of its powers.
type lacking struct {
	*memstore.Store
	lacks func(*onlyonce.Features)
}

func (l lacking) Features() onlyonce.Features {
	f := l.Store.Features()
	l.lacks(&f)
	return f
}
