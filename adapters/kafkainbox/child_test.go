package kafkainbox_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// The test binary plays a consumer in another process, which is killed at a named point.
const childEnv = "ONLYONCE_KAFKA_CHILD"

// runChild plays the part this process was started for, if any, and exits.
func runChild() {
	part, rest, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		return
	}
	fields := strings.Fields(rest)
	k := &kafka{addrs: strings.Split(fields[1], ","), topic: fields[2], group: fields[3]}
	k.session, _ = time.ParseDuration(fields[4])
	if err := childConsumes(context.Background(), part, fields[0], k); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// childConsumes says when it is at its point, and stays there.
func childConsumes(ctx context.Context, part, path string, k *kafka) error {
	db, err := openFile(path)
	if err != nil {
		return err
	}
	stay := func(at string) {
		if part == at {
			fmt.Println(at)
			select {}
		}
	}
	cfg := k.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		verdict, err := once(ctx, db, msg, func() { stay("before-commit") })
		stay("after-commit")
		return verdict, err
	})
	c, err := kafkainbox.New(cfg)
	if err != nil {
		return err
	}
	return errors.Join(c.Run(ctx), errors.New("the parent was to kill this process"))
}

// openFile opens a file that processes share. It is an inbox in small, ids and effects in
// one transaction, because adapters do not use each other's stores.
func openFile(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", path+"?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY);
		CREATE TABLE IF NOT EXISTS effects (id TEXT NOT NULL)`)
	return db, err
}

// once is a process function on such a file.
func once(ctx context.Context, db *sql.DB, msg inbox.Message, beforeCommit func()) (inbox.Verdict, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return inbox.Again, err
	}
	defer tx.Rollback()
	res, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO seen (id) VALUES (?)", msg.ID)
	if err != nil {
		return inbox.Again, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return inbox.Duplicate, err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO effects (id) VALUES (?)", msg.ID); err != nil {
		return inbox.Again, err
	}
	beforeCommit()
	if err := tx.Commit(); err != nil {
		return inbox.Again, err
	}
	return inbox.Handled, nil
}

// I2: killed between receive and commit, the record is applied by who comes after; between
// commit and acknowledgement, it is skipped. One effect either way.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	for point, want := range map[string]inbox.Verdict{"before-commit": inbox.Handled, "after-commit": inbox.Duplicate} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			eachKafka(t, 1, func(k *kafka) { killed(k, point, want) })
		})
	}
}

func killed(k *kafka, point string, want inbox.Verdict) {
	t := k.t
	path := filepath.Join(t.TempDir(), "once.db")
	db, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	k.produce(t, k.record(0, "m", "p"))
	kill := startChild(t, point, path, k)
	kill()
	if at := k.committed(t, 0); at > 0 {
		t.Errorf("the killed process has committed %d", at)
	}
	verdicts := make(chan inbox.Verdict, 9)
	cfg := k.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return once(ctx, db, msg, func() {})
	})
	cfg.Observe = func(e kafkainbox.Event) {
		if e.Kind == kafkainbox.EventProcessed {
			verdicts <- e.Verdict
		}
	}
	r := run(t, cfg)
	if got := <-verdicts; got != want {
		t.Errorf("the redelivery is %v, want %v", got, want)
	}
	r.stop()
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d effects, %v", n, err)
	}
	if at := k.committed(t, 0); at != 1 {
		t.Errorf("committed %d, want 1", at)
	}
}

// startChild starts a process and waits until it is at its point; the result is kill -9.
func startChild(t *testing.T, point, path string, k *kafka) (kill func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{point, path, strings.Join(k.addrs, ","), k.topic, k.group, k.session.String()}, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != point+"\n" {
		t.Fatalf("the process said %q, %v", line, err)
	}
	return kill
}
