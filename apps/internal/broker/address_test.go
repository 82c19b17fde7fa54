package broker_test

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/broker"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"amqp://u:secret@h:5672/v":                  "amqp://h:5672 (payments.events)",
		"amqps://h?name=x&heartbeat=5":              "amqps://h (x)",
		"nats://u:secret@h":                         "nats://h (payments.events)",
		"tls://h?name=a.b-c_D9":                     "tls://h (a.b-c_D9)",
		"kafka://h":                                 "kafka://h:9092 (payments.events)",
		"kafka://a:1,b:2?name=x":                    "kafka://a:1,b:2 (x)",
		"kafka://h/?session=6s":                     "kafka://h:9092 (payments.events)",
		"nats://h?name=" + strings.Repeat("x", 100): "nats://h (" + strings.Repeat("x", 100) + ")",
	} {
		a, err := broker.Parse(text)
		if got := a.String(); got != want || err != nil {
			t.Errorf("%s gives %s, %v; want %s", text, got, err, want)
		}
	}
}

// Each refusal says what is wrong, and how it is written; none repeats a password.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                     "no host",
		"amqp://":              "no host",
		"nats:h":               "no host",
		"http://u:secret@h":    "no broker",
		"amqp://u:secret%zz@h": "cannot be read",
		"nats://h?name=":       "a name that is not",
		"nats://h?name=a b":    "a name that is not",
		"nats://h?name=a..b":   "a name that is not",
		"nats://h?name=.a":     "a name that is not",
		"nats://h?name=>":      "a name that is not",
		"nats://h?name=" + strings.Repeat("x", 101): "a name that is not",
		"kafka://u:secret@h":                        "unencrypted",
		"kafka://h/topic":                           "?name=NAME",
		"kafka://h?acks=0":                          "?name=NAME",
		"kafka://h?session=1":                       "session",
		"kafka://h?session=1ms":                     "session",
	} {
		_, err := broker.Parse(text)
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "use amqp://USER:PASSWORD@HOST") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s gives %v, want %q", text, err, want)
		}
	}
}
