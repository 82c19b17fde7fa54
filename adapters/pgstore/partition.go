package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

// Partition has answers and kept requests stand beside the keys, in partitions by
// the time when they expire. Each takes what expires in one period; once that is
// over it is emptied as a whole, at a cost that hardly depends on what it holds, and
// is used for a later one. Keys themselves, narrow rows by then, are swept row by
// row, and so are the answers that lie in no partition's period.
//
// It is chosen by Migrate, which also switches tables over that are in use, and
// recorded in the tables: every process does as they say, whatever its own Config
// says. One that was under way when they were switched goes on by itself; a transaction
// that it had open then, or opens first, may be refused once, and is rolled back. A
// program that is too old to know of partitions is refused: one of the first version
// of the tables only when it completes a key, so stop those before.
type Partition struct {
	// Every is how long one period is; zero: no partitions. From a minute to a
	// year; 24 h are days of UTC.
	Every time.Duration
	// Ahead is how many whole periods ahead there is always a partition. What is
	// retained for longer than Every × Ahead is swept row by row. A replay opens
	// all of them, Ahead + 3, which costs it some microseconds each. Default 7, at
	// most 100.
	Ahead int
}

// WithDefaults returns a copy with the defaults filled in.
func (p Partition) WithDefaults() Partition {
	if p.Every != 0 && p.Ahead == 0 {
		p.Ahead = 7
	}
	return p
}

// Validate says what is wrong.
func (p Partition) Validate() error {
	const year = 366 * 24 * time.Hour
	var errs []error
	if p.Every != 0 && (p.Every < time.Minute || p.Every > year || p.Every%time.Second != 0) {
		errs = append(errs, configError("Partition.Every must be whole seconds from a minute to %v, got %v", year, p.Every))
	}
	if p.Ahead < 0 || p.Ahead > 100 || (p.Every == 0 && p.Ahead != 0) {
		errs = append(errs, configError("Partition.Ahead must be from 1 to 100, and needs Partition.Every, got %d", p.Ahead))
	}
	return errors.Join(errs...)
}

// slots is how many partitions take turns: for the present period, for those
// ahead, and one that is over and has time for as long as a period to be emptied.
func (p Partition) slots() int { return p.Ahead + 2 }

// Scripts gives the statements that Migrate switches tables over with, and those
// that bring everything back into the keys' rows, for people who apply them with a
// tool of their own. Each is one transaction, with the keys' table to itself. They name
// no schema: set search_path. The second one must be run before the down migrations. It
// is an error (CodeConfig) to ask for those of no
// partitions, or of a configuration that is not valid.
func (p Partition) Scripts() (on, off string, err error) {
	on, off, err = p.scripts("clock_timestamp()")
	return oneTransaction(on), oneTransaction(off), err
}

// oneTransaction makes one transaction of a script, since a key that is completed between two
// of its statements would be torn apart.
func oneTransaction(script string) string {
	if script == "" {
		return ""
	}
	return "BEGIN;\nLOCK TABLE onlyonce_keys IN ACCESS EXCLUSIVE MODE;\n\n" + script + "\nCOMMIT;\n"
}

func (p Partition) scripts(now string) (on, off string, err error) {
	if err := p.Validate(); err != nil {
		return "", "", err
	}
	if p.Every == 0 {
		return "", "", configError("Partition.Every must say how long a period is")
	}
	p = p.WithDefaults()
	up, err := fs.ReadFile(Migrations(), "partition/on.sql")
	if err != nil {
		return "", "", err
	}
	down, err := fs.ReadFile(Migrations(), "partition/off.sql")
	every := fmt.Sprintf("interval '%d seconds'", int64(p.Every/time.Second))
	return strings.NewReplacer("{every}", every, "{slots}", strconv.Itoa(p.slots()), "{now}", now).Replace(string(up)), string(down), err
}

// switchTries bounds how often Migrate tries to have the keys' table to itself.
const switchTries = 50

// switchOver gives the tables the partitions that the configuration asks for, or
// finds that they have them.
func (s *Store) switchOver(ctx context.Context, conn *pgxpool.Conn) error {
	want := s.cfg.Partition
	if want.Every == 0 {
		return nil
	}
	var err error
	for range switchTries {
		err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return s.partition(ctx, tx) })
		if !pgerr.HasState(err, pgerr.LockTimeout) || !pause(ctx) {
			break
		}
	}
	return classify("partition tables", err, committing)
}

// pause lets those through that have waited behind a try, a VACUUM perhaps; false when
// ctx has ended.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(200*time.Millisecond + rand.N(400*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// partition is switchOver in a transaction. It waits for the table no longer than
// claims may be made to wait behind it.
func (s *Store) partition(ctx context.Context, tx pgx.Tx) error {
	want := s.cfg.Partition
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1::bigint)`, int64(s.salt)+1); err != nil {
		return err
	}
	is, err := s.ask(ctx, tx)
	if err != nil {
		return err
	}
	if is.form == beside {
		return s.samePartition(ctx, tx)
	}
	now := "clock_timestamp()"
	if t := s.now(); t != nil {
		now = "timestamptz '" + t.UTC().Format("2006-01-02 15:04:05.999999") + "+00'"
	}
	on, _, err := want.scripts(now)
	if err != nil {
		return err
	}
	if s.cfg.Schema != "" {
		if err := enterSchema(ctx, tx, s.cfg.Schema); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, hurry); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, on)
	s.known.Store(nil)
	return err
}

// samePartition refuses another configuration than that of the tables.
func (s *Store) samePartition(ctx context.Context, tx pgx.Tx) error {
	var every int64
	var slots int
	if err := tx.QueryRow(ctx, s.sql.parts.recorded).Scan(&every, &slots); err != nil {
		return err
	}
	if want := s.cfg.Partition; duration(every) != want.Every || slots != want.slots() {
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "partition tables",
			Hint: fmt.Sprintf("the tables have partitions of %v, %d ahead, and Config.Partition asks for %v, %d ahead: leave it empty, or as they are",
				duration(every), slots-2, want.Every, want.Ahead),
		}
	}
	return nil
}
