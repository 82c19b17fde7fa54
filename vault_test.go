package onlyonce_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// bare is a store that keeps records and nothing else.
type bare struct{ onlyonce.Store }

func newBare(t *testing.T) bare {
	t.Helper()
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	return bare{mem}
}

func secret(id string) onlyonce.Secret {
	return onlyonce.Secret{ID: id, Key: []byte(strings.Repeat(id, 16))}
}

// F7: however many processes begin at once on an empty store, they agree on
// one secret: whoever loses uses the winner's, and no retry is taken for
// another request.
func TestConcurrentFirstUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := newWorld(t, nil)
		var wg sync.WaitGroup
		for i := range 20 {
			w := worldOn(t, first.mem, noFaults, onlyonce.Config{})
			for _, key := range []string{"shared", string(rune('a' + i))} {
				wg.Go(func() {
					_, err := w.Wrap(t.Context(), charge(), keyed(key, "x"), responds(201, key))
					if err != nil && onlyonce.CodeOf(err) != onlyonce.CodeInProgress {
						t.Errorf("key %s: %v", key, err)
					}
				})
			}
		}
		wg.Wait()
		for _, key := range []string{"shared", "a", "j", "t"} {
			res, err := first.Wrap(t.Context(), charge(), keyed(key, "x"), never(t))
			wantResult(t, res, err, onlyonce.Replayed, key)
		}
	})
}

// C11, F7: a store that cannot give or keep a secret or a policy refuses the
// request before anything has run, and is asked again the next time.
func TestSettingFails(t *testing.T) {
	t.Parallel()
	down := storefault.Fault{Before: storefault.ErrDown}
	for name, script := range map[string][]storefault.Fault{"secret": {down}, "policy": {{}, down}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, eff := newWorld(t, faults{storefault.AddSetting: script}), &effect{}
			_, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
			e := wantCode(t, err, onlyonce.CodeStoreUnavailable)
			if !errors.Is(err, storefault.ErrDown) || e.RetryAfter <= 0 || !onlyonce.SafeToRetry(err) || !strings.Contains(e.Op, name) {
				t.Errorf("refusal: %+v", e)
			}
			w.wantState(t, "k", "")
			if w.events.count(onlyonce.EventRefused) != 1 {
				t.Error("a refusal must be counted")
			}
			res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), eff.handler)
			wantResult(t, res, err, onlyonce.Executed, "run 1")
		})
	}
}

// F7: a record never names a policy or a secret that does not stand in the
// store.
func TestSettingsStandBeforeTheFirstRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	claims := 0
	checked := worldOn(t, w.mem, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
		if m != storefault.Claim {
			return storefault.Fault{}
		}
		claims++
		return storefault.Fault{Hold: func(ctx context.Context) {
			text, found, err := w.mem.Setting(ctx, "fingerprint-policy", onlyonce.PolicyID([]byte("lower")))
			if err != nil || !found || string(text) != "lower" {
				t.Errorf("policy %q, found %v, %v", text, found, err)
			}
			key, found, err := w.mem.Setting(ctx, "fingerprint-secret", "store-1")
			if err != nil || !found || len(key) < 32 {
				t.Errorf("secret of %d bytes, found %v, %v", len(key), found, err)
			}
		}}
	}, onlyonce.Config{})
	op := charge()
	op.Policy = []byte("lower")
	res, err := checked.Wrap(t.Context(), op, keyed("k", "Pay"), responds(201, "paid"))
	wantResult(t, res, err, onlyonce.Executed, "paid")
	if claims != 1 {
		t.Errorf("%d claims", claims)
	}
	rec, _, err := w.mem.Get(t.Context(), onlyonce.Key{Scope: "acct", Value: "k"})
	if v := rec.Fingerprint.Version; err != nil || v.Policy != onlyonce.PolicyID([]byte("lower")) || v.Secret != "store-1" || v.Form != 1 {
		t.Errorf("version %+v, %v", v, err)
	}
}

// F7: what another process has written, under its policy and the secret of the
// store, is read from there; while it cannot be read, nothing runs.
func TestSettingsOfAnotherProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	lower, exact := charge(), charge()
	lower.Policy, exact.Policy = []byte("lower"), []byte("exact")
	res, err := w.Wrap(t.Context(), lower, keyed("k", "Pay"), responds(201, "paid"))
	wantResult(t, res, err, onlyonce.Executed, "paid")

	fresh := func(keyring onlyonce.Keyring, script ...storefault.Fault) *world {
		return worldOn(t, w.mem, storefault.Script(faults{storefault.Setting: script}), onlyonce.Config{Secrets: keyring})
	}
	down := storefault.Fault{Before: storefault.ErrDown}
	for name, other := range map[string]*world{
		"another policy":            fresh(onlyonce.Keyring{}, down),
		"another secret and policy": fresh(onlyonce.Keyring{Current: secret("s")}, down, storefault.Fault{}, down),
	} {
		for range 2 {
			_, err := other.Wrap(t.Context(), exact, keyed("k", "pAY"), never(t))
			if err == nil {
				break
			}
			if wantCode(t, err, onlyonce.CodeStoreUnavailable); !errors.Is(err, storefault.ErrDown) {
				t.Errorf("%s: %v", name, err)
			}
		}
		res, err := other.Wrap(t.Context(), exact, keyed("k", "pAY"), never(t))
		wantResult(t, res, err, onlyonce.Replayed, "paid")
		_, err = other.Wrap(t.Context(), exact, keyed("k", "other"), never(t))
		wantCode(t, err, onlyonce.CodeKeyReused)
	}
}

// F7: a store without settings works with secrets that are handed in, and what
// it then cannot judge is a 503.
func TestStoreWithoutSettings(t *testing.T) {
	t.Parallel()
	store := newBare(t)
	_, err := onlyonce.New(store, onlyonce.Config{})
	if e := wantCode(t, err, onlyonce.CodeConfig); !strings.Contains(e.Hint, "memory") {
		t.Errorf("hint: %s", e.Hint)
	}
	lower, exact := charge(), charge()
	lower.Policy, exact.Policy = []byte("lower"), []byte("exact")
	process := func(keyring onlyonce.Keyring) *onlyonce.Engine {
		e, err := onlyonce.New(store, onlyonce.Config{Secrets: keyring})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := process(onlyonce.Keyring{Current: secret("a")})
	res, err := first.Wrap(t.Context(), lower, keyed("k", "Pay"), responds(201, "paid"))
	wantResult(t, res, err, onlyonce.Executed, "paid")
	// It knows the policy it has used before.
	res, err = first.Wrap(t.Context(), exact, keyed("k", "pay"), never(t))
	wantResult(t, res, err, onlyonce.Replayed, "paid")
	for name, c := range map[string]struct {
		keyring onlyonce.Keyring
		op      onlyonce.Op
		code    onlyonce.Code
	}{
		"same":               {onlyonce.Keyring{Current: secret("a")}, lower, ""},
		"rotated":            {onlyonce.Keyring{Current: secret("b"), Old: []onlyonce.Secret{secret("c"), secret("a")}}, lower, ""},
		"secret not known":   {onlyonce.Keyring{Current: secret("b")}, lower, onlyonce.CodeStoreUnavailable},
		"policy not known":   {onlyonce.Keyring{Current: secret("a")}, exact, onlyonce.CodeStoreUnavailable},
		"policy never known": {onlyonce.Keyring{Current: secret("a")}, charge(), onlyonce.CodeStoreUnavailable},
	} {
		c.op.FailOpen = true // the store is there: no licence to run
		res, err := process(c.keyring).Wrap(t.Context(), c.op, keyed("k", "Pay"), never(t))
		if c.code == "" {
			wantResult(t, res, err, onlyonce.Replayed, "paid")
		} else if onlyonce.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

// F7: a form that this process does not know, of a newer deploy, is a 503.
func TestFormOfANewerVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	newer := onlyonce.Request{Key: onlyonce.Key{Scope: "acct", Value: "k"}, Canonical: version2{text("x")}}
	res, err := w.Wrap(t.Context(), charge(), newer, responds(201, "done"))
	wantResult(t, res, err, onlyonce.Executed, "done")
	_, err = w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	// A policy that cannot be applied is a fault of the configuration.
	broken := onlyonce.Request{Key: onlyonce.Key{Scope: "acct", Value: "l"}, Canonical: version2{nil}}
	_, err = w.Wrap(t.Context(), charge(), broken, never(t))
	wantCode(t, err, onlyonce.CodeConfig)
}

// version2 is a text in a newer canonical form.
type version2 struct{ onlyonce.Canonicalizer }

func (version2) Version() int { return 2 }

func (v version2) Form(version int, policy []byte) (onlyonce.Form, error) {
	if v.Canonicalizer == nil {
		return nil, errors.New("policy of another world")
	}
	return v.Canonicalizer.Form(version-1, policy)
}

// F7: a secret that is too short to be one, or that no record can name, is
// refused at the start.
func TestKeyringIsValidated(t *testing.T) {
	t.Parallel()
	store := newBare(t)
	good := secret("a")
	for name, c := range map[string]struct {
		keyring onlyonce.Keyring
		ok      bool
	}{
		"one":           {onlyonce.Keyring{Current: good}, true},
		"two":           {onlyonce.Keyring{Current: good, Old: []onlyonce.Secret{secret("b")}}, true},
		"longest ID":    {onlyonce.Keyring{Current: onlyonce.Secret{ID: strings.Repeat("i", 32), Key: good.Key}}, true},
		"ID too long":   {onlyonce.Keyring{Current: onlyonce.Secret{ID: strings.Repeat("i", 33), Key: good.Key}}, false},
		"16 bytes":      {onlyonce.Keyring{Current: onlyonce.Secret{ID: "a", Key: good.Key[:16]}}, true},
		"15 bytes":      {onlyonce.Keyring{Current: onlyonce.Secret{ID: "a", Key: good.Key[:15]}}, false},
		"no key":        {onlyonce.Keyring{Current: onlyonce.Secret{ID: "a"}}, false},
		"old without":   {onlyonce.Keyring{Current: good, Old: []onlyonce.Secret{{}}}, false},
		"old too short": {onlyonce.Keyring{Current: good, Old: []onlyonce.Secret{secret("b"), {ID: "c", Key: good.Key[:15]}}}, false},
	} {
		_, err := onlyonce.New(store, onlyonce.Config{Secrets: c.keyring})
		if c.ok && err != nil || !c.ok && onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), string(good.Key[:15])) {
			t.Errorf("%s: the key is in %v", name, err)
		}
	}
	_, err := onlyonce.New(store, onlyonce.Config{Secrets: onlyonce.Keyring{Current: good}, SettleTimeout: -1})
	wantCode(t, err, onlyonce.CodeConfig)
}

// A store that keeps no steps or no audit says so instead of running anything.
func TestStoreWithoutStepsOrAudit(t *testing.T) {
	t.Parallel()
	e, err := onlyonce.New(newBare(t), onlyonce.Config{Secrets: onlyonce.Keyring{Current: secret("a")}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Steps(t.Context(), charge(), keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeConfig)
	_, err = e.Settle(t.Context(), settlement(nil))
	wantCode(t, err, onlyonce.CodeConfig)
}

// without one never found, two secrets of one ID make retries look different.
func TestHalfAKeyringIsRefused(t *testing.T) {
	t.Parallel()
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, keyring := range map[string]onlyonce.Keyring{
		"key without ID":    {Current: onlyonce.Secret{Key: secret("a").Key}},
		"old without ID":    {Old: []onlyonce.Secret{{Key: secret("a").Key}}},
		"old too short":     {Old: []onlyonce.Secret{{ID: "a", Key: []byte("short")}}},
		"one ID, two keys":  {Current: secret("a"), Old: []onlyonce.Secret{{ID: "a", Key: secret("b").Key}}},
		"one ID among olds": {Current: secret("a"), Old: []onlyonce.Secret{secret("b"), {ID: "b", Key: secret("c").Key}}},
	} {
		if _, err := onlyonce.New(mem, onlyonce.Config{Secrets: keyring}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// F7: the caller's own list of old secrets is not written to.
func TestKeyringIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), responds(201, "done"))
	wantResult(t, res, err, onlyonce.Executed, "done")
	all := []onlyonce.Secret{secret("a"), secret("b")}
	other := worldOn(t, w.mem, noFaults, onlyonce.Config{Secrets: onlyonce.Keyring{Current: secret("c"), Old: all[:1]}})
	res, err = other.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
	wantResult(t, res, err, onlyonce.Replayed, "done")
	if all[1].ID != "b" {
		t.Errorf("the caller's second secret is now %s", all[1])
	}
}
