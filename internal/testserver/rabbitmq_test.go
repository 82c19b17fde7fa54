package testserver

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	first, second := RabbitMQ(t), RabbitMQ(t)
	if first == second || !strings.HasPrefix(first, "amqp://guest:guest@127.0.0.1:") {
		t.Fatalf("virtual hosts %s and %s", first, second)
	}
	if first[:strings.LastIndex(first, "/")] != second[:strings.LastIndex(second, "/")] {
		t.Errorf("two servers were started for %s and %s", first, second)
	}
}

func TestRabbitMQKill(t *testing.T) {
	t.Parallel()
	s, err := startRabbitMQ()
	if err != nil {
		unavailable(t, err)
	}
	before, name := s.URL(), path.Base(s.VHost(t))
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if speaksAMQP(s.port) {
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
	if s.URL() != before || !speaksAMQP(s.port) {
		t.Errorf("after a crash: %s, was %s", s.URL(), before)
	}
	if there, err := s.eval(t.Context(), `rabbit_vhost:exists(<<"`+name+`">>)`); there != "true" || err != nil {
		t.Errorf("the virtual host of before the crash: %s, %v", there, err)
	}
	if _, err := s.eval(t.Context(), "no expression"); err == nil {
		t.Error("nonsense was evaluated")
	}
	dir := s.folder.path
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no process of the server is left", func() bool { return len(processesIn(t, dir)) == 0 })
}

// processesIn are the command lines of all processes that have dir in their
// environment or command line.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range files {
		environ, _ := os.ReadFile(name) // it may have ended
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if strings.Contains(string(environ)+string(line), dir) {
			found = append(found, string(line))
		}
	}
	return found
}
