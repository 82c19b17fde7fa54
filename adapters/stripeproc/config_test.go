package stripeproc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/provider"
)

// Each fault of a configuration names its field.
func TestValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(c *stripeproc.Config)
		want   string // the fields; empty: it is right
	}{
		"the least":             {func(*stripeproc.Config) {}, ""},
		"no key":                {func(c *stripeproc.Config) { c.Key = "" }, "Key"},
		"a key with a newline":  {func(c *stripeproc.Config) { c.Key += "\n" }, "Key"},
		"a publishable key":     {func(c *stripeproc.Config) { c.Key = "pk_test_1" }, "Key"},
		"an account with space": {func(c *stripeproc.Config) { c.Account = "acct 1" }, "Account"},
		"clear text":            {func(c *stripeproc.Config) { c.BaseURL = "http://stripe.internal" }, "BaseURL"},
		"clear text at home":    {func(c *stripeproc.Config) { c.BaseURL = "http://localhost:12111" }, ""},
		"clear text on [::1]":   {func(c *stripeproc.Config) { c.BaseURL = "http://[::1]:12111" }, ""},
		"another scheme":        {func(c *stripeproc.Config) { c.BaseURL = "ftp://localhost" }, "BaseURL"},
		"no host":               {func(c *stripeproc.Config) { c.BaseURL = "https://" }, "BaseURL"},
		"a query":               {func(c *stripeproc.Config) { c.BaseURL = "https://a.example?x=1" }, "BaseURL"},
		"a password":            {func(c *stripeproc.Config) { c.BaseURL = "https://u:secret@a.example" }, "BaseURL"},
		"not a URL":             {func(c *stripeproc.Config) { c.BaseURL = "https://u:secret@[" }, "BaseURL"},
		"a proxy's path":        {func(c *stripeproc.Config) { c.BaseURL = "https://a.example/stripe" }, ""},
		"a name":                {func(c *stripeproc.Config) { c.Name = "a\tb" }, "Name"},
		"too long a memory":     {func(c *stripeproc.Config) { c.Memory = 25 * time.Hour }, "Memory"},
		"all of the promise":    {func(c *stripeproc.Config) { c.Memory = 24 * time.Hour }, ""},
		"too soon":              {func(c *stripeproc.Config) { c.Visible = 59 * time.Minute }, "Visible"},
		"never visible":         {func(c *stripeproc.Config) { c.Visible = -1 }, ""},
		"a negative timeout":    {func(c *stripeproc.Config) { c.Timeout = -1 }, "Timeout"},
		"two at once":           {func(c *stripeproc.Config) { c.Key, c.Timeout = "", -1 }, "Key,Timeout"},
	} {
		cfg := stripeproc.Config{Key: testKey}
		c.change(&cfg)
		_, err := stripeproc.New(cfg)
		if (err == nil) != (c.want == "") {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		for field := range strings.SplitSeq(c.want, ",") {
			if err != nil && (!strings.Contains(err.Error(), field+" ") || onlyonce.CodeOf(err) != onlyonce.CodeConfig || strings.Contains(err.Error(), "secret@")) {
				t.Errorf("%s: got %v, want it to name %s", name, err, field)
			}
		}
	}
}

func TestTraits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  stripeproc.Config
		want provider.Traits
	}{
		{stripeproc.Config{}, provider.Traits{Name: "stripe", Memory: 23 * time.Hour, Lookup: true, Visible: 24 * time.Hour}},
		{
			stripeproc.Config{Name: "stripe-eu", Memory: -1, Visible: -1, NoSearch: true},
			provider.Traits{Name: "stripe-eu", Lookup: true},
		},
	} {
		if diff := cmp.Diff(c.want, newProvider(t, c.cfg).Traits()); diff != "" {
			t.Error(diff)
		}
	}
}

// However a configuration or a provider is printed, the key is not in it.
func TestKeyIsNotShown(t *testing.T) {
	t.Parallel()
	cfg := stripeproc.Config{Key: testKey}
	p := newProvider(t, cfg)
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		slog.New(handler).Info("made", slog.Any("config", cfg), slog.Any("provider", p), slog.Any("within", struct{ C stripeproc.Config }{cfg}))
	}
	raw, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{log.String(), string(raw)}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		shown = append(shown, fmt.Sprintf(format, cfg), fmt.Sprintf(format, &cfg), fmt.Sprintf(format, p), fmt.Sprintf(format, struct{ P *stripeproc.Provider }{p}))
	}
	for _, text := range shown {
		if strings.Contains(text, "4eC39") {
			t.Errorf("the key is shown: %s", text)
		}
	}
	if !strings.Contains(log.String(), "sk_test_[redacted]") {
		t.Errorf("the key's kind is not shown: %s", log.String())
	}
	if got := (stripeproc.Config{Key: "opaque"}).String(); strings.Contains(got, "opaque") {
		t.Error(got)
	}
}
