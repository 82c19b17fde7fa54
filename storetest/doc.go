// Package storetest examines an onlyonce.Store: every rule of the store
// contract is a named subtest, and says in words what is broken when it fails.
//
// A backend's own test file opens the store and calls Run, RunTx and RunModel;
// it holds nothing but that and what is special to the backend. What a store's
// Features do not promise is skipped by name.
package storetest
