package sqlitestore

import (
	"path/filepath"
	"strings"
	"testing"
)

// Every statement of the request path, and every sweep, finds its rows by an
// index.
func TestPlans(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "once.db"), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	byDigest := "USING INDEX sqlite_autoindex_onlyonce_keys_1 (digest"
	plans := map[string]struct {
		query string
		want  []string
	}{
		"selectKey":      {selectKey, []string{byDigest}},
		"beginNewLife":   {beginNewLife, []string{byDigest}},
		"resumeKey":      {resumeKey, []string{byDigest}},
		"renewKey":       {renewKey, []string{byDigest}},
		"completeKey":    {completeKey, []string{byDigest}},
		"releaseKey":     {releaseKey, []string{byDigest}},
		"parkKey":        {parkKey, []string{byDigest}},
		"ownedState":     {ownedState, []string{byDigest}},
		"beginStep":      {beginStep, []string{byDigest}},
		"endStep":        {endStep, []string{"onlyonce_steps_1 (digest=? AND origin=? AND name=? AND occurrence=?)", byDigest}},
		"stepState":      {stepState, []string{"onlyonce_steps_1 (digest=? AND origin=? AND name=? AND occurrence=?)"}},
		"selectSteps":    {selectSteps, []string{"onlyonce_steps_1 (digest=? AND origin=?)", byDigest}},
		"sweepExpired":   {sweepExpired, []string{"INDEX onlyonce_keys_expires (expires_us<?)", "INTEGER PRIMARY KEY"}},
		"anyExpired":     {anyExpired, []string{"INDEX onlyonce_keys_expires (expires_us<?)"}},
		"sweepPark":      {sweepPark, []string{"INDEX onlyonce_keys_lease (lease_end_us<?)", "INTEGER PRIMARY KEY"}},
		"sweepFree":      {sweepFree, []string{"INDEX onlyonce_keys_lease (lease_end_us<?)", "INTEGER PRIMARY KEY"}},
		"anyAbandoned":   {anyAbandoned, []string{"INDEX onlyonce_keys_lease (lease_end_us<?)"}},
		"sweepSteps":     {sweepSteps, []string{"onlyonce_steps_changed (changed_us<?)", byDigest}},
		"anyDeadSteps":   {anyDeadSteps, []string{"onlyonce_steps_changed (changed_us<?)"}},
		"listAll":        {listAll, []string{byDigest + ">?)"}},
		"listState":      {listState, []string{byDigest + ">?)"}},
		"listDoubt":      {listDoubt, []string{"INDEX onlyonce_keys_doubt (digest>?)"}},
		"listInProgress": {listInProgress, []string{"INDEX onlyonce_keys_lease"}},
		"selectHolder":   {selectHolder, []string{"INDEX onlyonce_keys_holds (holds=?)"}},
		"letExpiredGo":   {letExpiredGo, []string{byDigest}},
		"stepForTx":      {stepForTx, []string{byDigest, "onlyonce_steps_1 (digest=? AND origin=? AND name=? AND occurrence=?)"}},
		"insertDoneStep": {insertDoneStep, []string{byDigest}},
		"anyDue":         {anyDue, []string{"INDEX onlyonce_keys_due (due_us>? AND due_us<?)", "onlyonce_steps_1 (digest=? AND origin=?)"}},
		"selectDue":      {selectDue, []string{"INDEX onlyonce_keys_due (due_us>? AND due_us<?)", "onlyonce_steps_1 (digest=? AND origin=?)"}},
		"putOff":         {putOff, []string{byDigest}},
		"selectKept":     {selectKept, []string{byDigest}},
		"requeueKey":     {requeueKey, []string{byDigest}},
		"selectAudit":    {selectAudit, []string{"INDEX onlyonce_audit_key (digest=?)"}},
		"selectSetting":  {selectSetting, []string{"PRIMARY KEY (kind=? AND id=?)"}},
		"schemaVersion":  {schemaVersion, nil},
	}
	for name, p := range plans {
		plan := explain(t, s, p.query)
		for _, want := range p.want {
			if !strings.Contains(plan, want) {
				t.Errorf("%s: the plan has no %q:\n%s", name, want, plan)
			}
		}
		if name == "selectDue" && strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s: the plan sorts:\n%s", name, plan)
		}
		plan = strings.ReplaceAll(plan, "SCAN json_each", "the operations asked for")
		whole := strings.Contains(plan, "SCAN onlyonce_keys\n") || strings.Contains(plan, "SCAN k\n") || strings.Contains(plan, "SCAN s\n")
		if whole || (strings.Contains(plan, "SCAN") && name != "listInProgress" && len(p.want) > 0 && !strings.Contains(plan, "CONSTANT ROW")) {
			t.Errorf("%s: the plan reads a whole table:\n%s", name, plan)
		}
	}
}

func explain(t *testing.T, s *Store, query string) string {
	t.Helper()
	args := make([]any, strings.Count(query, "?"))
	for i := range args {
		args[i] = 1
	}
	rows, err := s.writer.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(detail + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
