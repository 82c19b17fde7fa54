package processor

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestJournalThatCannotBeWritten checks that nothing is applied without being on
// disk, and that nothing is taken after the first failure, for what is in the
// file is then uncertain.
func TestJournalThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j, err := openJournal(path, func(entry) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
	if j.file, err = os.Open(path); err != nil { // for reading only
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if err := j.append(entry{}, func() { t.Error("an entry was applied") }); err == nil {
				t.Error("an entry was taken")
			}
		})
	}
	all.Wait()
	if j.failure() == nil {
		t.Error("the journal calls itself healthy")
	}
	if err := j.close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := j.append(entry{}, func() {}); err == nil {
		t.Error("a closed journal took an entry")
	}
}
