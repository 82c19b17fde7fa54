package cli

import (
	"strings"
	"testing"
)

// No error line shows a password, however wrong the command line is, and a URL at the
// wrong place is answered with the flag it belongs to. // X2
func TestNoPasswordInErrors(t *testing.T) {
	t.Parallel()
	const url = "postgres://u:S3cr3tPW@h/db"
	for _, tt := range []struct {
		args string
		want string
	}{
		{"sweep " + url, "did you mean --store?"},
		{"migrate up " + url, "did you mean --store?"},
		{"migrate " + url, "did you mean --store?"},
		{"sweep --batch " + url, "did you mean --store?"},
		{"keys list --store redis://u:S3cr3tPW@h/" + "S3cr3tPW", "onlyonce: "},
		{"keys list --store redis://h:1/0?dial_timeout=u:S3cr3tPW@h", "onlyonce: "},
		{"keys list --store redis://h:1/0?addr=u:S3cr3tPW@h:x", "onlyonce: "},
		{"keys list --store redis://u:pw/S3cr3tPW@h/0", "onlyonce: "},
		{"keys list --store mysql://h:1/d?timeout=u:S3cr3tPW@h", "onlyonce: "},
		{"serve --store mysql://u:S3cr3tPW@h/d", "needs sqlite:PATH or postgres://"},
		{"serve --store postgres://u:S3cr3tPW@h/d?schema=s", "needs sqlite:PATH or postgres://"},
	} {
		out, errs, code := run(t, strings.Fields(tt.args)...)
		if code == exitDone || strings.Contains(out+errs, "S3cr3tPW") || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: %d %s %s, want %q", tt.args, code, out, errs, tt.want)
		}
	}
}

// What is masked is the password; the form of a URL and other text stay.
func TestMasked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"unexpected argument postgres://u:p%40w@h/db": "unexpected argument postgres://u:xxxxx@h/db",
		"redis://:pw@h":                                "redis://:xxxxx@h",
		"postgres://u:/p@w@h/db":                       "postgres://u:xxxxx@h/db",
		"invalid addr=u:pw@h:1":                        "invalid addr=u:xxxxx@h:1",
		"a whole escapedword":                          "a whole xxxxx",
		"use mysql://USER:PASSWORD@HOST:PORT/DATABASE": "use mysql://USER:PASSWORD@HOST:PORT/DATABASE",
		"there is no key \"ann@example.org\"":          "there is no key \"ann@example.org\"",
		"cannot reach 127.0.0.1:5432: refused":         "cannot reach 127.0.0.1:5432: refused",
	} {
		if got := masked(text, secretsOf([]string{"sweep", "mysql://u:escaped%77ord@h/d"})); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
