package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// written are the tables that a run writes when it has read the report.
func (b *bundle) written(t *testing.T) (n int) {
	t.Helper()
	for _, table := range []string{"payments_findings", "payments_reconciled", "onlyonce_audit"} {
		n += b.count(t, table)
	}
	return n
}

// A report whose last line is broken changes nothing.
func TestBrokenReport(t *testing.T) { // X2
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_timeout", 1500, 409)
		var text strings.Builder
		text.WriteString(b.bank.report())
		for i := range 2000 {
			text.WriteString(row(fmt.Sprintf("pc_%d", i), "", 100, i))
		}
		text.WriteString("charge,pc_last,,,1x,ARS,2026-01-31T12:00:00Z\n")
		cfg := b.config(text.String())
		cfg.Heal = true
		_, err := reconcile.Run(t.Context(), cfg)
		e, ok := errors.AsType[*report.Error](err)
		if !ok || e.Line != 2003 || e.Column != 18 || e.Name != "amount" {
			t.Errorf("it gives %v", err)
		}
		if n := b.written(t); n != 0 || b.count(t, "payments_report_rows") != 0 || b.state(t, "c1") != "in_doubt" {
			t.Errorf("%d rows were written, the key is %s", n, b.state(t, "c1"))
		}
		if res := b.heal(t, b.bank.report()); res.Healed != 1 {
			t.Errorf("%+v", res)
		}
	})
}

// One run at a time: the second is told of the first, and changes nothing of it.
func TestTwoRuns(t *testing.T) { // X2
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		reader, writer := io.Pipe()
		read := make(chan struct{}, 1)
		cfg := b.config("")
		cfg.Report = reader
		cfg.Progress = func(p reconcile.Progress) {
			if p.Phase == reconcile.Reading && p.Rows >= 500 {
				select {
				case read <- struct{}{}:
				default:
				}
			}
		}
		done := make(chan error, 1)
		go func() {
			_, err := reconcile.Run(context.WithoutCancel(t.Context()), cfg)
			done <- err
		}()
		line := func(i int) string { return row(fmt.Sprintf("pc_%d", i), "", 100, i) }
		_, _ = io.WriteString(writer, header)
		for i := range 600 {
			_, _ = io.WriteString(writer, line(i))
		}
		<-read
		_, err := reconcile.Run(t.Context(), b.config(header))
		busy, ok := errors.AsType[*reconcile.BusyError](err)
		if !ok || busy.Run != 1 || busy.Actor != "ana" || !strings.Contains(err.Error(), "another reconciliation (run 1 of ana) is at work") {
			t.Errorf("the second run gives %v", err)
		}
		_, _ = io.WriteString(writer, line(600))
		_ = writer.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := len(b.open(t)); got != 601 {
			t.Errorf("%d findings", got)
		}
	})
}

// A run that has slept through its right finds that out before it draws any
// conclusion: its rows may have been deleted.
func TestLockLost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_timeout", 1500, 409)
		cfg := b.config(b.bank.report())
		cfg.Heal = true
		cfg.Progress = func(p reconcile.Progress) {
			if p.Phase == reconcile.Reading {
				b.exec(t, "UPDATE payments_report_lock SET run = 99")
			}
		}
		if _, err := reconcile.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "lost its right") {
			t.Errorf("it gives %v", err)
		}
		if n := b.written(t); n != 0 || b.state(t, "c1") != "in_doubt" {
			t.Errorf("%d rows were written, the key is %s", n, b.state(t, "c1"))
		}
		// So does one whose rows are gone.
		b.exec(t, "UPDATE payments_report_lock SET until_us = 0")
		cfg = b.config(b.bank.report())
		cfg.Heal = true
		cfg.Progress = func(p reconcile.Progress) {
			if p.Phase == reconcile.Reading {
				b.exec(t, "DELETE FROM payments_report_rows")
			}
		}
		if _, err := reconcile.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "staged rows are gone") {
			t.Errorf("it gives %v", err)
		}
		if n := b.written(t); n != 0 {
			t.Errorf("%d rows were written", n)
		}
	})
}

// A run that is stopped gives its right back and cleans up.
func TestStopped(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("enough")
		cfg := b.config(header + row("x", "", 1, 0))
		cfg.Progress = func(p reconcile.Progress) {
			if p.Phase == reconcile.Matching {
				cancel(stop)
			}
		}
		if _, err := reconcile.Run(ctx, cfg); !errors.Is(err, context.Canceled) {
			t.Errorf("it gives %v", err)
		}
		if n := b.written(t) + b.count(t, "payments_report_rows") + b.count(t, "payments_report_unmatched"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		if res := b.run(t, b.config(header)); res.Run != 2 {
			t.Errorf("%+v", res)
		}
	})
}

// childStore names the store of a run in a process of its own.
const childStore = "ONLYONCE_TEST_RECONCILE_STORE"

// child is that run: it reads standard input, and says when rows are staged.
func child(url string) error {
	d, err := db.Open(context.Background(), url)
	if err != nil {
		return err
	}
	f, err := report.Named(report.FormatProcessor)
	if err != nil {
		return err
	}
	_, err = reconcile.Run(context.Background(), reconcile.Config{
		DB: d, Report: os.Stdin, File: "-", Format: f, Provider: reconcile.Processor(), Actor: "child",
		Progress: func(reconcile.Progress) { fmt.Println("staged") },
	})
	return err
}

// Killed in the middle, a run has imported nothing; the next one deletes what it
// has staged.
func TestKilled(t *testing.T) { // X2
	t.Parallel()
	url := "sqlite:" + t.TempDir() + "/test.db"
	b := setup(t, url)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childStore+"="+url)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	text.WriteString(header)
	for i := range 1200 {
		text.WriteString(row(fmt.Sprintf("pc_%d", i), "r", 100, i))
	}
	if _, err := in.Write(text.Bytes()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("staged\n"))); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if n := b.count(t, "payments_report_rows"); n < 500 || b.written(t) != 0 {
		t.Errorf("%d rows are staged, %d written", n, b.written(t))
	}
	// Its right has not run out.
	_, err = reconcile.Run(t.Context(), b.config(header))
	busy, ok := errors.AsType[*reconcile.BusyError](err)
	if !ok || busy.Actor != "child" {
		t.Errorf("it gives %v", err)
	}
	b.exec(t, "UPDATE payments_report_lock SET until_us = 1")
	if res := b.run(t, b.config(header)); res.Run != 2 || res.Found() {
		t.Errorf("%+v", res)
	}
}
