package onlyonce

// An optional power of a store counts when the store both has the methods and
// promises the power in its Features: a store that stands before another has all
// methods, and promises what the other does.

// StepsOf gives the store's power to keep steps; false if it has none.
func StepsOf(s Store) (StepStore, bool) { return power[StepStore](s, s.Features().Steps) }

// SettingsOf gives the store's power to keep settings; false if it has none.
func SettingsOf(s Store) (SettingStore, bool) { return power[SettingStore](s, s.Features().Settings) }

// OperatorsOf gives the store's powers for operators; false if it has none.
func OperatorsOf(s Store) (OperatorStore, bool) {
	return power[OperatorStore](s, s.Features().Operators)
}

// RecoveryOf gives the store's powers for recovery; false if it has none.
func RecoveryOf(s Store) (RecoveryStore, bool) {
	return power[RecoveryStore](s, s.Features().Recovery)
}

// TransactionsOf gives the store's transactions of one driver; false if it has
// none, or another driver's.
func TransactionsOf[Tx any](s Store) (TxStore[Tx], bool) {
	return power[TxStore[Tx]](s, s.Features().Transactions)
}

func power[T any](s Store, promised bool) (T, bool) {
	if !promised {
		var none T
		return none, false
	}
	t, ok := s.(T)
	return t, ok
}
