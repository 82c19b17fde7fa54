package testserver

import (
	"errors"
	"testing"
)

func TestNATS(t *testing.T) {
	t.Parallel()
	s := NATS(t)
	before := s.URL()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if s.ready() {
		t.Error("the server answers after Kill")
	}
	if err := s.Kill(); err != nil {
		t.Errorf("Kill of a dead server: %v", err)
	}
	for range 2 {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if s.URL() != before || !s.ready() {
		t.Errorf("after a crash: %s, was %s", s.URL(), before)
	}
	if other := NATS(t); other.URL() == before {
		t.Errorf("two tests share %s", before)
	}
}

// A paused server keeps its port and answers nothing, until it is resumed; it can be
// killed meanwhile.
func TestNATSPause(t *testing.T) {
	t.Parallel()
	s := NATS(t)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	for s.ready() { // it may answer once more
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := s.proc.waitReady(s.ready); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Pause(), s.Kill()); err != nil {
		t.Error(err)
	}
	if s.Pause() == nil {
		t.Error("a dead server is paused")
	}
}

func TestNATSStartReportsItsLog(t *testing.T) {
	t.Parallel()
	if _, err := findNATS(); err != nil {
		unavailable(t, err)
	}
	_, err := startNATS("max_payload: nonsense")
	if err == nil {
		t.Fatal("started with a broken setting")
	}
	wantContains(t, err.Error(), "ended before it was ready", "nats.conf:5")
}
