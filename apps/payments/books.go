package payments

// Book is one of the service's tables of effects at the provider, for whoever
// compares them with the provider's own. Its columns are seq, id, merchant,
// operation, amount, currency, status, processor_id and created_us, whatever else
// it has: status is StatusSucceeded where money has moved, and processor_id is
// unique, or NULL where the provider has no name for it.
type Book struct {
	// Type says what its rows are: "charge" or "refund".
	Type string
	// Table is its name.
	Table string
	// Step is the step that has the effect.
	Step string
}

// StatusSucceeded is the status of a row whose money has moved.
const StatusSucceeded = statusSucceeded

// Books are all of them.
func Books() []Book {
	return []Book{
		{Type: "charge", Table: "payments_charges", Step: stepCharge},
		{Type: "refund", Table: "payments_refunds", Step: stepRefund},
	}
}
