package onlyonce

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Kinds of settings the engine keeps in a store.
const (
	settingSecret = "fingerprint-secret"
	settingPolicy = "fingerprint-policy"
	// storedSecretID names the secret the engine makes by itself.
	storedSecretID = "store-1"
)

// vault knows the secrets and policies that fingerprints are made with, and
// fetches those it lacks from the store.
type vault struct {
	settings SettingStore // nil: only what the process was given

	mu       sync.Mutex
	keyring  Keyring
	policies map[string][]byte
	kept     map[string]bool // policies known to stand in the store
}

func newVault(keyring Keyring, settings SettingStore) *vault {
	keyring.Old = slices.Clone(keyring.Old)
	return &vault{settings: settings, keyring: keyring, policies: map[string][]byte{}, kept: map[string]bool{}}
}

// current gives the secret for new records, making it in the store by
// insert-if-absent when none was configured.
func (v *vault) current(ctx context.Context) (Secret, error) {
	v.mu.Lock()
	s := v.keyring.Current
	v.mu.Unlock()
	if s.ID != "" {
		return s, nil
	}
	key, err := v.settings.AddSetting(ctx, settingSecret, storedSecretID, newSecret())
	if err != nil {
		return Secret{}, unavailable("read fingerprint secret", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keyring.Current = Secret{ID: storedSecretID, Key: key}
	return v.keyring.Current, nil
}

// secret finds the secret a record was written with.
func (v *vault) secret(ctx context.Context, id string) (Secret, error) {
	v.mu.Lock()
	s, ok := v.keyring.find(id)
	v.mu.Unlock()
	if ok {
		return s, nil
	}
	if v.settings != nil {
		key, ok, err := v.settings.Setting(ctx, settingSecret, id)
		if err != nil {
			return Secret{}, unavailable("read fingerprint secret", err)
		}
		if ok {
			return v.remember(Secret{ID: id, Key: key}), nil
		}
	}
	return Secret{}, &Error{
		Code: CodeStoreUnavailable, Op: "check fingerprint", RetryAfter: time.Second,
		Hint: "this process cannot judge the key's record; ask again later with the same key",
		Err:  errors.New("the record was written with secret " + id + ", which this process does not have: add it to the old secrets"),
	}
}

// remember adds a secret of the store's to the old ones.
func (v *vault) remember(s Secret) Secret {
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.keyring.find(s.ID); ok {
		return known
	}
	v.keyring.Old = append(v.keyring.Old, s)
	return s
}

// keep makes sure that a policy stands in the store before a record names it.
func (v *vault) keep(ctx context.Context, policy []byte) (id string, err error) {
	id = PolicyID(policy)
	v.mu.Lock()
	done := v.kept[id]
	v.policies[id] = policy
	v.mu.Unlock()
	if done || v.settings == nil {
		return id, nil
	}
	if _, err := v.settings.AddSetting(ctx, settingPolicy, id, policy); err != nil {
		return "", unavailable("store fingerprint policy", err)
	}
	v.mu.Lock()
	v.kept[id] = true
	v.mu.Unlock()
	return id, nil
}

// policy finds the text of a policy a record was written under.
func (v *vault) policy(ctx context.Context, id string) ([]byte, error) {
	v.mu.Lock()
	text, ok := v.policies[id]
	v.mu.Unlock()
	if ok {
		return text, nil
	}
	if v.settings != nil {
		text, ok, err := v.settings.Setting(ctx, settingPolicy, id)
		if err != nil {
			return nil, unavailable("read fingerprint policy", err)
		}
		if ok {
			v.mu.Lock()
			v.policies[id] = text
			v.mu.Unlock()
			return text, nil
		}
	}
	return nil, &Error{
		Code: CodeStoreUnavailable, Op: "check fingerprint", RetryAfter: time.Second,
		Hint: "this process cannot judge the key's record; ask again later with the same key",
		Err:  errors.New("the record was written under policy " + id + ", which this process does not know"),
	}
}

// unavailable says that the store failed before anything was run, or that it does
// not decide about the key: then where the key lives comes back as it is.
func unavailable(op string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok && e.Code == CodeMisdirected {
		return e
	}
	return &Error{
		Code: CodeStoreUnavailable, Op: op, Err: err, RetryAfter: time.Second,
		Hint: "nothing was run; send the same request again with the same key",
	}
}
