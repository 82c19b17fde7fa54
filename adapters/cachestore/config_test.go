package cachestore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	at := &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}
	wrong := map[string]cachestore.Config{
		"MaxBytes":           {MaxBytes: -1},
		"MaxEntry":           {MaxBytes: 10, MaxEntry: 11},
		"Margin":             {Margin: -1},
		"MaxAge":             {MaxAge: -1},
		"Shared.Redis.Addrs": {Shared: &cachestore.Shared{}},
		"Shared.Timeout":     {Shared: &cachestore.Shared{Redis: at, Timeout: time.Microsecond}},
		"Shared.Secret":      {Shared: &cachestore.Shared{Redis: at, Secret: []byte("short")}},
	}
	for field, cfg := range wrong {
		if err := cfg.Validate(); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
		if s, err := cachestore.New(newCounting(t), cfg); err == nil {
			t.Errorf("%s: %+v", field, s.Features())
		}
	}
	all := cachestore.Config{MaxBytes: -1, Margin: -1, Shared: &cachestore.Shared{Timeout: 1}}
	if err := all.Validate(); strings.Count(err.Error(), "configure cachestore") < 4 {
		t.Errorf("not all that is wrong is named: %v", err)
	}
	for name, cfg := range map[string]cachestore.Config{"zero": {}, "small": {MaxBytes: 10}, "shared": {Shared: &cachestore.Shared{Redis: at}}} {
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The margin grows with the time that clocks have to drift apart.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for maxAge, want := range map[time.Duration]time.Duration{0: 7200 * time.Millisecond, time.Minute: 5 * time.Second, 24 * time.Hour: 172800 * time.Millisecond} {
		if got := (cachestore.Config{MaxAge: maxAge}).WithDefaults().Margin; got != want {
			t.Errorf("MaxAge %v: margin %v, want %v", maxAge, got, want)
		}
	}
	shared := cachestore.Shared{}
	if d := (cachestore.Config{Shared: &shared}).WithDefaults(); d.Shared.Timeout != 50*time.Millisecond || d.Shared.Namespace != "onlyonce" || shared.Timeout != 0 {
		t.Errorf("shared: %+v, given %+v", d.Shared, shared)
	}
}

// A cache needs a store, and a shared one a secret.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	if _, err := cachestore.New(nil, cachestore.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("no store: %v", err)
	}
	cfg := cachestore.Config{Shared: &cachestore.Shared{Redis: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}}}
	if _, err := cachestore.New(bare{newCounting(t)}, cfg); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "Shared.Secret is required: the bare store keeps no settings") {
		t.Errorf("no secret: %v", err)
	}
	cfg.Shared.Secret = []byte("sixteen bytes, 1")
	s, err := cachestore.New(bare{newCounting(t)}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
