// Package journaltest examines journals of package onceclient: what the interface
// promises is a rule here, and a journal of any kind must pass them all.
//
//	func TestContract(t *testing.T) {
//		journaltest.Run(t, func(t *testing.T) onceclient.Journal { return open(t) })
//	}
//
// What only a crash shows (a killed holder's entry is free again, a write that was cut
// off leaves the old entry or the new one) is for the journal's own tests: how a process
// is killed in the middle of something depends on it.
package journaltest
