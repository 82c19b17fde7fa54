package mysqlstore

// SQL gives statements by name, as they are sent, with what a plan needs to know of
// them.
func SQL() map[string]string {
	return map[string]string{
		"selectKey": selectKey, "selectBoth": selectBoth, "beginNewLife": beginNewLife, "resumeKey": resumeKey, "letExpiredGo": letExpiredGo,
		"keepOn": keepOn, "renewKey": renewKey, "completeKey": completeKey, "completeBare": completeBare, "ownedKey": ownedKey,
		"lockOwned": lockOwned, "stepsBehind": stepsBehind, "freeKey": freeKey, "freeKept": freeKept, "parkKey": parkKey + leaseOver + notRenewed,
		"insertStep": insertStep, "sendAgain": sendAgain, "sendAnew": sendAnew, "endStep": endStep, "lookStep": lookStep, "selectSteps": selectSteps,
		"selectDue": selectDue + dueInOrder + passLocked, "putOff": putOff, "selectKept": selectKept, "requeueKey": requeueKey,
		"listKeys": listKeys + ` ORDER BY k.digest LIMIT ?`, "listDoubt": listDoubt + ` ORDER BY k.digest LIMIT ?`,
		"expiredKeys": expiredKeys, "lockExpired": lockExpired + places(3), "abandonedKeys": abandonedKeys, "lookLater": lookLater,
		"deadSteps": deadSteps, "deleteStep": deleteStep,
	}
}

// SweepLock is the name of the sweepers' lock.
func SweepLock(s *Store) string { return s.locks + "sweep" }
