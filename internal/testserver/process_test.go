package testserver

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// envChild makes this test binary start a cluster and wait to be killed.
const envChild = "ONLYONCE_TEST_CHILD"

// childMain is the test binary that dies.
func childMain() int {
	c, err := startCluster(nil)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println(c.DSN(), c.folder.path)
	select {}
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A test binary that is killed takes its server with it, and the next one clears
// its folder away.
func TestKilledBinaryLeavesNothing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux's parent death signal")
	}
	if _, err := findPostgres(); err != nil {
		unavailable(t, err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), envChild+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dsn, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
	if err != nil || !ok || dsn == "error" {
		t.Fatalf("child printed %q, %v", line, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed

	eventually(t, "the server ends", func() bool { return !listens(t, dsn) })
	eventually(t, "its folder is cleared away", func() bool {
		removeAbandoned(filepath.Dir(dir))
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}

func TestRemoveAbandonedSparesWhatIsInUse(t *testing.T) {
	t.Parallel()
	f, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	removeAbandoned(filepath.Dir(f.path))
	if _, err := os.Stat(f.path); err != nil {
		t.Errorf("folder in use: %v", err)
	}
	if err := f.remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.path); !os.IsNotExist(err) {
		t.Errorf("folder after remove: %v, want none", err)
	}
}

func TestFreePortIsBelowTheEphemeralRange(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Skip("this system does not tell its ephemeral range")
	}
	low, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	if port >= low || port == 5432 {
		t.Errorf("port %d, want one below %d that is not 5432", port, low)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("a\nb\nc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tail(path, 2); got != "b\nc" {
		t.Errorf("tail = %q, want the last two lines", got)
	}
}
