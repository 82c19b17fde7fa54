package pgstore

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

// moveBatch is how many rows are moved in one transaction while others work.
const moveBatch = 1000

// Maintenance is what MaintainPartitions did.
type Maintenance struct {
	// Busy: somebody else is at it; nothing was done.
	Busy bool
	// Emptied counts partitions that were emptied and given a later period, Late
	// those that are to be, but that somebody reads all the time: the next call
	// tries again.
	Emptied, Late int
	// Moved counts answers that had not expired and requests that are still kept,
	// which were taken out of them before.
	Moved int
}

// MaintainPartitions empties the partitions whose period is over by the server's
// clock and gives them a later one. Sweep does it as well, where the role may: it
// takes TRUNCATE on the partitions, tables named onlyonce_answers_N and
// onlyonce_requests_N, which their owner has. Where the sweeper's role must not have
// that, call this once a period or more often as a role that has it. Until then
// nothing is lost and everything works: answers that find no partition are put
// where they are swept row by row.
//
// What is still wanted of a partition (requests of keys that are under way or in
// doubt, above all) is moved before, in small transactions, and once more when
// nobody else can get at it, in the transaction that empties it. A crash, or a lost
// connection, in between leaves everything readable. It waits for a lock for 100 ms
// at most, and so do replays behind it; claims of fresh keys and completions never
// do. It is an error (CodeConfig) to call it without partitions, or without the
// right.
func (s *Store) MaintainPartitions(ctx context.Context) (Maintenance, error) {
	x, err := s.session(ctx)
	if err != nil {
		return Maintenance{}, classify("maintain partitions", err, undone)
	}
	defer x.close(ctx)
	if x.form != beside {
		return Maintenance{}, &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "maintain partitions", Hint: "the tables have no partitions: run Migrate with Config.Partition",
		}
	}
	if may, err := x.mayEmpty(ctx); err != nil || !may {
		return Maintenance{}, cannotEmpty(err)
	}
	return x.maintain(ctx)
}

func cannotEmpty(err error) error {
	if err != nil {
		return classify("maintain partitions", err, undone)
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeConfig, Op: "maintain partitions",
		Hint: "the role needs TRUNCATE on the partitions of onlyonce_answers and onlyonce_requests: grant it, or call this as their owner",
	}
}

func (x *session) mayEmpty(ctx context.Context) (may bool, err error) {
	err = x.conn.QueryRow(ctx, x.s.sql.parts.mayEmpty, pgx.QueryExecModeExec).Scan(&may)
	return may, err
}

// maintain looks after all partitions whose period is over, one after the other.
func (x *session) maintain(ctx context.Context) (Maintenance, error) {
	var done Maintenance
	slots, err := x.over(ctx)
	if err != nil {
		return done, classify("maintain partitions", err, undone)
	}
	for _, slot := range slots {
		err := x.retire(ctx, slot, &done)
		x.undo(ctx)
		switch {
		case pgerr.HasState(err, pgerr.LockTimeout):
			done.Late++
		case err != nil:
			return done, classify("maintain partitions", err, committing)
		}
	}
	return done, nil
}

// over lists the partitions whose period is over.
func (x *session) over(ctx context.Context) ([]int16, error) {
	rows, err := x.conn.Query(ctx, x.s.sql.parts.over, x.s.now())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int16])
}

// retire moves what is still wanted of a partition elsewhere, empties it and gives
// it a later period.
func (x *session) retire(ctx context.Context, slot int16, done *Maintenance) error {
	for {
		taken, err := x.take(ctx, slot)
		if err != nil || !taken {
			done.Busy = done.Busy || err == nil
			return err
		}
		moved, err := x.move(ctx, slot, moveBatch)
		if err != nil {
			return err
		}
		if moved == 0 {
			return x.empty(ctx, slot, done)
		}
		if err := x.commit(ctx); err != nil {
			return err
		}
		done.Moved += int(moved)
	}
}

// take begins a transaction that is the only one to look after the partition;
// false: another is at it, or has done it.
func (x *session) take(ctx context.Context, slot int16) (bool, error) {
	p := x.s.sql.parts
	var ok bool
	st := &stmt{sql: p.take, args: []any{slot, x.s.now()}, dest: []any{&ok}}
	err := x.begin(ctx, pgx.ReadCommitted, &stmt{sql: text{hurry, hurry}, dest: []any{new(string), new(string), new(string)}}, st)
	return st.found, err
}

// move moves up to limit answers and as many requests that are still wanted, and
// says how many. Its statements are planned for what is there.
func (x *session) move(ctx context.Context, slot int16, limit int64) (int64, error) {
	var answers, requests int64
	p := x.s.sql.parts
	err := x.tx.QueryRow(ctx, p.moveAnswers.in(x.form), pgx.QueryExecModeExec, slot, x.s.now(), limit).Scan(&answers)
	if err == nil {
		err = x.tx.QueryRow(ctx, p.moveRequests.in(x.form), pgx.QueryExecModeExec, slot, limit).Scan(&requests)
	}
	return answers + requests, err
}

// empty empties the partition. What was written into it until nobody else could get
// at it is looked at once more, in statements whose snapshot is younger than that.
func (x *session) empty(ctx context.Context, slot int16, done *Maintenance) error {
	p := x.s.sql.parts
	if _, err := x.tx.Exec(ctx, fmt.Sprintf(p.lock, slot)); err != nil {
		return err
	}
	moved, err := x.move(ctx, slot, math.MaxInt64)
	if err != nil {
		return err
	}
	if _, err := x.tx.Exec(ctx, fmt.Sprintf(p.empty, slot)); err != nil {
		return err
	}
	if _, err := x.tx.Exec(ctx, p.turn, slot, x.s.now()); err != nil {
		return err
	}
	if err := x.commit(ctx); err != nil {
		return err
	}
	done.Moved += int(moved)
	done.Emptied++
	return x.pad(ctx, slot)
}

// pad gives an emptied partition its first pages. It waits for nobody.
func (x *session) pad(ctx context.Context, slot int16) error {
	var sts []*stmt
	for _, sql := range x.s.sql.parts.pad {
		sts = append(sts, &stmt{sql: sql, args: []any{slot}})
	}
	return x.whole(ctx, sts...)
}
