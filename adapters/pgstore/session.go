package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

// facts are what decides how statements are sent, and which.
type facts struct {
	// plain: a statement sent by itself is a durable transaction in read
	// committed. If not, BEGIN, settings and COMMIT must go with it.
	plain bool
	// form is that of the tables.
	form form
}

// askFacts asks for them. The form is told by a column that only one has.
const askFacts = `SELECT current_setting('default_transaction_isolation'), current_setting('synchronous_commit'),
	EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass($1::text) AND attname = 'answer_slot' AND NOT attisdropped)`

// acquire takes a connection out of the pool. Its errors say that nothing was
// sent.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, pgerr.NoConnection(ctx, err)
	}
	return conn, nil
}

// usable is an error when nothing can be sent any more.
func usable(conn *pgxpool.Conn) error {
	if conn.Conn().IsClosed() {
		return &pgerr.NotSentError{Err: pgconn.ErrConnClosed}
	}
	return nil
}

// look finds out what sessions are like.
func (s *Store) look(ctx context.Context) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return classify("open pgstore", err, undone)
	}
	defer conn.Release()
	_, err = s.learn(ctx, conn)
	return classify("open pgstore", err, undone)
}

// learn gives the facts. It asks once.
func (s *Store) learn(ctx context.Context, q queryer) (facts, error) {
	if known := s.known.Load(); known != nil {
		return *known, nil
	}
	return s.ask(ctx, q)
}

func (s *Store) ask(ctx context.Context, q queryer) (facts, error) {
	var isolation, sync string
	var apart bool
	if err := q.QueryRow(ctx, askFacts, s.cfg.qualifier()+"onlyonce_keys").Scan(&isolation, &sync, &apart); err != nil {
		return facts{}, &pgerr.NotSentError{Err: err}
	}
	f := facts{plain: isolation == string(pgx.ReadCommitted) && sync != "off", form: inRow}
	if apart {
		f.form = beside
	}
	s.known.Store(&f)
	return f, nil
}

// outdated tells whether the server has refused a statement because the tables
// have another form by now than it was made for: nothing has happened. What was
// known is forgotten.
func (s *Store) outdated(err error) bool {
	if !pgerr.HasState(err, pgerr.NoColumn) && !pgerr.HasState(err, pgerr.NoTable) {
		return false
	}
	s.known.Store(nil)
	return true
}

// write runs a statement in a transaction of its own, in one round trip.
func (s *Store) write(ctx context.Context, op string, st *stmt) error {
	return classify(op, s.single(ctx, st), committing)
}

// query runs a statement that only reads.
func (s *Store) query(ctx context.Context, op string, st *stmt) error {
	return classify(op, s.single(ctx, st), undone)
}

// single runs a statement by itself; once more when it has met tables of another
// form than they had.
func (s *Store) single(ctx context.Context, st *stmt) error {
	x, err := s.session(ctx)
	if err != nil {
		return err
	}
	defer x.close(ctx)
	err = x.single(ctx, st)
	if !s.outdated(err) || x.tx != nil {
		return err
	}
	now, unknown := s.ask(ctx, x.conn)
	if unknown != nil || now.form == x.form {
		return err
	}
	x.facts = now
	return x.single(ctx, st)
}

func (x *session) single(ctx context.Context, st *stmt) error {
	if !x.plain {
		return x.whole(ctx, st)
	}
	if err := usable(x.conn); err != nil {
		return err
	}
	return st.on(ctx, x.conn, x.form)
}

// writeAll runs statements in a transaction of their own, in one round trip. Each
// sees what was committed before it began.
func (s *Store) writeAll(ctx context.Context, op string, sts ...*stmt) error {
	x, err := s.session(ctx)
	if err != nil {
		return classify(op, err, committing)
	}
	defer x.close(ctx)
	return classify(op, x.whole(ctx, sts...), committing)
}

// session is one transaction on one connection. We send its BEGIN and COMMIT
// ourselves, with other statements.
type session struct {
	facts
	s    *Store
	conn *pgxpool.Conn
	tx   pgx.Tx // nil: none is open
	// claimed: the open transaction has written the claim, so that nobody else
	// can change the row before it ends.
	claimed bool
	// promised: it holds the lock on a key that has no row, which is to be
	// written by insertAnswer.
	promised *onlyonce.ClaimRequest
}

func (s *Store) session(ctx context.Context) (*session, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	f, err := s.learn(ctx, conn)
	if err != nil {
		conn.Release()
		return nil, err
	}
	return &session{s: s, conn: conn, facts: f}, nil
}

// batch begins with BEGIN and our settings.
func (x *session) batch(isolation pgx.TxIsoLevel) *pgx.Batch {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: isolation, AccessMode: pgx.ReadWrite})
	b.Queue(x.s.settings)
	return b
}

// whole runs statements in a transaction, BEGIN and COMMIT included.
func (x *session) whole(ctx context.Context, sts ...*stmt) error {
	b := x.batch(pgx.ReadCommitted)
	for _, st := range sts {
		st.queue(b, x.form)
	}
	return x.send(ctx, b, queueCommit(b))
}

// begin begins a transaction and runs statements in it, in one round trip.
func (x *session) begin(ctx context.Context, isolation pgx.TxIsoLevel, sts ...*stmt) error {
	b := x.batch(isolation)
	for _, st := range sts {
		st.queue(b, x.form)
	}
	return x.send(ctx, b, nil)
}

// commitTag is what the server answered to a COMMIT.
type commitTag struct{ tag string }

func queueCommit(b *pgx.Batch) *commitTag {
	c := &commitTag{}
	b.Queue("commit").Exec(func(tag pgconn.CommandTag) error {
		c.tag = tag.String()
		return nil
	})
	return c
}

// send sends a batch and reads all of its results. With committed, the batch
// ends in COMMIT.
func (x *session) send(ctx context.Context, b *pgx.Batch, committed *commitTag) error {
	if err := usable(x.conn); err != nil {
		return err
	}
	br := x.conn.SendBatch(ctx, b)
	if tx := br.Tx(); tx != nil {
		x.tx = tx
	}
	err := br.Close()
	switch {
	case err != nil:
		x.s.outdated(err)
		return err
	case committed == nil:
		return nil
	case committed.tag != "COMMIT":
		x.tx = nil
		return pgx.ErrTxCommitRollback
	default:
		x.tx = nil
		return nil
	}
}

// commit runs statements and COMMIT in one round trip. An error of any of them
// keeps the COMMIT from running.
func (x *session) commit(ctx context.Context, sts ...*stmt) error {
	b := &pgx.Batch{}
	for _, st := range sts {
		st.queue(b, x.form)
	}
	return x.send(ctx, b, queueCommit(b))
}

// rollback ends the open transaction and runs a statement behind it, in one
// round trip. In a transaction that has failed nothing can be prepared, so
// there it takes two.
func (x *session) rollback(ctx context.Context, st *stmt) error {
	if x.tx != nil && x.conn.Conn().PgConn().TxStatus() == 'E' {
		if err := x.tx.Rollback(ctx); err != nil {
			return err
		}
		x.tx = nil
	}
	b := &pgx.Batch{}
	if x.tx != nil {
		b.Queue("rollback")
	}
	st.queue(b, x.form)
	err := x.send(ctx, b, nil)
	if err == nil {
		x.tx, x.claimed, x.promised = nil, false, nil
	}
	return err
}

// rollbackTimeout bounds the farewell to a transaction. One that cannot be
// rolled back in time ends with its connection.
const rollbackTimeout = 5 * time.Second

// close rolls back what is open and gives the connection back. It is deferred,
// so that it runs on every way out.
func (x *session) close(ctx context.Context) {
	x.undo(ctx)
	x.conn.Release()
}

// undo rolls back what is open.
func (x *session) undo(ctx context.Context) {
	if x.tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = x.tx.Rollback(ctx) // when it fails, the connection is closed, which rolls back
	x.tx = nil
}

// alive tells whether the transaction we began is still the one that is open.
func (x *session) alive() bool {
	status := x.conn.Conn().PgConn().TxStatus()
	return status == 'T' || status == 'E'
}

// read ends a transaction that has lost its claim, then reads.
func (x *session) read(ctx context.Context, st *stmt) error {
	return classify("read key", x.rollback(ctx, st), undone)
}

func (x *session) takesHold() bool { return false }

func (x *session) sql() claimStatements { return x.s.sql.inTx }

// try begins a transaction with a statement that makes a claim.
func (x *session) try(ctx context.Context, st *stmt) error {
	err := x.begin(ctx, x.s.cfg.Isolation, st)
	x.claimed = st.found
	if lostResource(err) {
		return nil
	}
	return classify("claim key", err, undone)
}

// fresh begins a transaction with the claim of a key that has no row. In
// isolations whose snapshot is as old as the transaction the row must be
// inserted at once: only that finds out about one the snapshot does not see.
func (x *session) fresh(ctx context.Context, req onlyonce.ClaimRequest) (*onlyonce.Claim, error) {
	s, d := x.s, req.Key.Digest()
	if s.cfg.Isolation != pgx.ReadCommitted {
		return s.insert(ctx, req, x)
	}
	var ok bool
	var now time.Time
	lock := &stmt{sql: s.sql.lockKey, args: []any{s.lock(d)}, dest: []any{&ok}}
	absent := &stmt{sql: s.sql.absentKey, args: []any{d[:], s.now()}, dest: []any{&now}}
	if err := x.begin(ctx, pgx.ReadCommitted, lock, absent); err != nil || !lock.found || !absent.found {
		return nil, classify("claim key", err, undone)
	}
	x.claimed, x.promised = true, &req
	rec := claimed(req, "", false)
	rec.Fence = onlyonce.NextFence(0, now)
	rec.Origin, rec.Attempts, rec.CreatedAt, rec.LeaseEnd = rec.Fence, 1, now, now.Add(duration(micros(req.Lease)))
	return &onlyonce.Claim{Verdict: onlyonce.Won, Record: rec, Remaining: req.Lease}, nil
}
