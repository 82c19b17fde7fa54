package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PoolOf is the store's pool, for tests that look beside it.
func PoolOf(s *Store) *pgxpool.Pool { return s.pool }

// SchemaOf is where the store's tables are.
func SchemaOf(s *Store) string { return s.cfg.Schema }

// SQLOf gives a store's statements by name, in the form of its tables.
func SQLOf(s *Store) map[string]string {
	q := s.sql
	is, err := s.learn(context.Background(), s.pool)
	if err != nil {
		panic(err)
	}
	out := map[string]string{}
	for name, t := range map[string]text{
		"insertKey": q.single.insertKey, "insertKept": q.single.insertKept, "readKey": q.readKey,
		"takeKey": q.single.takeKey, "takeKept": q.single.takeKept, "renewKey": q.renewKey,
		"absentKey": q.absentKey, "insertAnswer": q.insertAnswer,
		"completeKey": q.completeKey, "finishKey": q.finishKey, "ownedKey": q.ownedKey, "ownKey": q.ownKey, "releaseKey": q.releaseKey, "parkKey": q.parkKey,
		"readBoth": q.readBoth, "letGoKey": q.letGoKey, "lookStep": q.lookStep, "addStep": q.addStep,
		"giveTurns": q.giveTurns, "putOff": q.putOff, "kept": q.kept, "requeue": q.requeue,
		"listKeys": q.listKeys, "listDoubt": q.listDoubt, "beginStep": q.beginStep, "endStep": q.endStep, "steps": q.steps,
		"moveAnswers": q.parts.moveAnswers, "moveRequests": q.parts.moveRequests,
		"deleteExpired": q.deleteExpired, "lockAbandoned": q.lockAbandoned,
		"decideAbandoned": q.decideAbandoned, "deleteExpiredSteps": q.deleteExpiredSteps,
	} {
		out[name] = t.in(is.form)
	}
	return out
}
