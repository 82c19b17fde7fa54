package server_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/server"
)

// told is a log that says when a line has come.
type told struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	come chan struct{}
}

func (l *told) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := strings.Contains(l.text.String(), l.want)
	n, err := l.text.Write(p)
	if !before && strings.Contains(l.text.String(), l.want) {
		close(l.come)
	}
	return n, err
}

// A broker that cannot be reached keeps nobody from charging; the log says what waits,
// and the service ends in order.
func TestEventsWithoutBroker(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"nats://127.0.0.1:1", "amqp://u:secret@127.0.0.1:1"} {
		t.Run(url[:4], func(t *testing.T) {
			t.Parallel()
			log := &told{want: "events cannot be published", come: make(chan struct{})}
			cfg := config(t)
			cfg.Events, cfg.Logger = url, slog.New(slog.NewTextHandler(log, nil))
			s := start(t, cfg)
			client := &http.Client{Transport: &http.Transport{}}
			t.Cleanup(client.CloseIdleConnections)
			if status, body := post(t, client, s.URL, "k", "tok_visa"); status != http.StatusCreated {
				t.Fatalf("%d: %s", status, body)
			}
			<-log.come
			log.mu.Lock()
			defer log.mu.Unlock()
			if text := log.text.String(); !strings.Contains(text, "waiting=1") || strings.Contains(text, "secret") {
				t.Errorf("the log says %s", text)
			}
		})
	}
}

func TestEventsURL(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Events = "redis://u:secret@h"
	_, err := server.Start(t.Context(), cfg)
	if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "--events") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a broker that nobody knows: %v", err)
	}
}
