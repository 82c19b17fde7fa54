package mysqlstore

import (
	"context"
	"database/sql"
)

// SQL gives statements by name, as they are sent, with what a plan needs to know of
// them.
func SQL() map[string]string {
	return map[string]string{
		"selectKey": selectKey, "selectBoth": selectBoth, "beginNewLife": beginNewLife, "resumeKey": resumeKey, "letExpiredGo": letExpiredGo,
		"keepOn": keepOn, "renewKey": renewKey, "completeKey": completeKey, "completeBare": completeBare, "ownedKey": ownedKey,
		"lockOwned": lockOwned, "stepsBehind": stepsBehind, "freeKey": freeKey, "freeKept": freeKept, "parkKey": parkKey + leaseOver + notRenewed,
		"insertStep": insertStep, "sendAgain": sendAgain, "sendAgainSeen": sendAgainSeen, "lookSend": lookSend, "touchKey": touchKey, "lockFree": lockFree, "sendAnew": sendAnew, "endStep": endStep, "lookStep": lookStep, "selectSteps": selectSteps,
		"selectDue": selectDue + dueInOrder + passLocked, "putOff": putOff, "selectKept": selectKept, "requeueKey": requeueKey,
		"listKeys": listKeys + ` ORDER BY k.digest LIMIT ?`, "listDoubt": listDoubt + ` ORDER BY k.digest LIMIT ?`,
		"expiredKeys": expiredKeys, "lockExpired": lockExpired + places(3), "abandonedKeys": abandonedKeys, "lookLater": lookLater,
		"deadSteps": deadSteps, "deleteStep": deleteStep,
	}
}

// MigrateLock is the name of the migrators' lock.
func MigrateLock(s *Store) string { return s.locks + "migrate" }

// InTx runs a statement in a transaction of the store's own, and commits it by way of
// commit.
func InTx(ctx context.Context, s *Store, query string, commit func(func() error) error) error {
	l, err := s.line(ctx)
	if err != nil {
		return err
	}
	defer l.close(ctx)
	if err := l.begin(ctx, sql.LevelReadCommitted); err != nil {
		return err
	}
	if err := exec(ctx, l.tx, query); err != nil {
		return err
	}
	return commit(func() error { return l.commit("test") })
}

// SweepLock is the name of the sweepers' lock.
func SweepLock(s *Store) string { return s.locks + "sweep" }
