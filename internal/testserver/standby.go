package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
)

// standbyName is what a standby calls itself, and how the primary knows it.
const standbyName = "standby"

// Pair is a private PostgreSQL server and a standby that follows it commit by
// commit: what the primary has confirmed can be read on the standby.
type Pair struct {
	Primary, Standby *Cluster
}

// NewPair starts both for one test and stops them when it ends. Settings are as
// for [NewCluster], for both.
func NewPair(tb testing.TB, settings ...string) *Pair {
	tb.Helper()
	p := &Pair{Primary: NewCluster(tb, append(slices.Clone(settings), "synchronous_commit=remote_apply")...)}
	var err error
	if p.Standby, err = p.Primary.follow(tb.Context()); err != nil {
		tb.Fatalf("start standby: %v", err)
	}
	tb.Cleanup(func() {
		if err := p.Standby.close(); err != nil {
			tb.Errorf("stop standby: %v", err)
		}
	})
	if err := p.synchronize(tb.Context()); err != nil {
		tb.Fatalf("have the primary wait for its standby: %v", err)
	}
	return p
}

// DSN is a URL with both servers, for a client that looks for the one that takes
// writes.
func (p *Pair) DSN() string {
	u, err := url.Parse(p.Primary.DSN())
	if err != nil {
		return "" // we have made it
	}
	u.Host += "," + address(p.Standby.port)
	q := u.Query()
	q.Set("target_session_attrs", "read-write")
	u.RawQuery = q.Encode()
	return u.String()
}

// Promote makes the standby a server that takes writes, and returns when it does.
// The primary must be gone: nothing here keeps it from taking writes as well.
func (p *Pair) Promote(ctx context.Context) error {
	return p.Standby.server().run(ctx, "SELECT pg_promote(true, 60)")
}

// follow starts a standby with a copy of the cluster's data.
func (c *Cluster) follow(ctx context.Context) (*Cluster, error) {
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	source := fmt.Sprintf("host=127.0.0.1 port=%d user=%s application_name=%s", c.port, superuser, standbyName)
	s := &Cluster{bin: c.bin, folder: f, settings: append([]string{"primary_conninfo=" + source}, c.settings...)}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := f.command(ctx, c.bin+"/pg_basebackup", "--dbname", source, "--pgdata", s.data(),
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--create-slot", "--slot="+standbyName, "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("run pg_basebackup: %w\n%s", err, out), f.remove())
	}
	for range startTries {
		if s.port, err = freePort(); err != nil {
			break
		}
		if err = s.Start(); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, f.remove())
}

// synchronize has every commit of the primary wait until the standby has applied
// it. Only now: before there is a standby, no commit would ever return.
func (p *Pair) synchronize(ctx context.Context) error {
	primary := p.Primary.server()
	for _, statement := range []string{
		"ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (" + standbyName + ")'",
		"SELECT pg_reload_conf()",
		`DO $$ BEGIN
			WHILE NOT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync') LOOP
				PERFORM pg_sleep(0.02);
				PERFORM pg_stat_clear_snapshot();
			END LOOP;
		END $$`,
	} {
		if err := primary.run(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
