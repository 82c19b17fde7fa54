package portable

import "github.com/jackc/pgx/v5/pgxpool"

// PoolOf is the store's pool, for tests that look beside it.
func PoolOf(s *Store) *pgxpool.Pool { return s.pool }

// SchemaOf is where the store's tables are.
func SchemaOf(s *Store) string { return s.cfg.Schema }

// SendsWatched is how many sends of steps a handle watches.
func SendsWatched(s *Store) int { return s.sends.Len() }

// Statements are those whose plans matter, by name, in the schema that is searched.
func Statements(s *Store) map[string]string {
	all := map[string]string{}
	for name, text := range map[string]string{
		"selectKey": selectKey, "selectHolder": selectHolder, "completeKey": completeKey, "changeKey": changeKey, "selectSteps": selectSteps,
		"selectExpired": selectExpired, "selectAbandoned": selectAbandoned, "selectDeadSteps": selectDeadSteps,
		"selectDue": selectDue, "selectDueOf": selectDueOf, "listKeys": listKeys, "listState": listState,
	} {
		all[name] = s.sql(text)
	}
	return all
}

// RefusedToBegin explains an error of beginning a transaction.
func RefusedToBegin(err error) error { return refusedToBegin(err) }
