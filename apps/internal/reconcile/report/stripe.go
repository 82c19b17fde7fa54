package report

import "strings"

// stripeReference is the metadata under which the adapter for Stripe keeps our
// reference.
const stripeReference = "onlyonce_reference"

// stripeFormat reads Stripe's balance transactions: the itemized reports of the
// API and the Dashboard (balance_transaction_id, reporting_category, gross …),
// and the export of all activity (id, Type, Source, Amount …).
//
// A charge is known by its PaymentIntent where the report names it. A refund's
// row may hold the metadata of its charge, so that only refund_metadata is
// believed to be the refund's own.
func stripeFormat() Format {
	return Format{
		Name: FormatStripe, Provider: "stripe", Major: true, RefundReference: true, Types: stripeTypes(),
		Columns: map[Field][]string{
			FieldType:              {"reporting_category", "type"},
			FieldID:                {"payment_intent_id", "PaymentIntent ID", "source_id", "Source"},
			FieldRefundID:          {"source_id", "Source"},
			FieldReference:         {"payment_metadata[" + stripeReference + "]", stripeReference + " (metadata)"},
			FieldRefundReference:   {"refund_metadata[" + stripeReference + "]"},
			FieldAmount:            {"gross", "Amount"},
			FieldCurrency:          {"currency"},
			FieldCreated:           {"created_utc", "Created (UTC)"},
			FieldPresentedAmount:   {"customer_facing_amount", "Customer Facing Amount"},
			FieldPresentedCurrency: {"customer_facing_currency", "Customer Facing Currency"},
		},
	}
}

// stripeSkipped are the types and reporting categories that are between the
// account and Stripe, or are disputes: no charge or refund of ours. Not among
// them, and so reported, are those that undo one, such as refund_failure.
const stripeSkipped = `payout payout_cancel payout_failure payout_reversal payout_minimum_balance_hold payout_minimum_balance_release
stripe_fee stripe_fx_fee tax_fee fee network_cost tax adjustment other_adjustment dispute dispute_reversal
application_fee application_fee_refund platform_earning platform_earning_refund connect_collection_transfer
connect_reserved_funds transfer transfer_cancel transfer_failure transfer_refund transfer_reversal topup topup_reversal
reserve_transaction reserve_hold reserve_release reserved_funds risk_reserved_funds payment_network_reserve_hold
payment_network_reserve_release contribution climate_order_purchase climate_order_refund
advance advance_funding anticipation_repayment financing_payout financing_payout_reversal financing_paydown
financing_paydown_reversal issuing_authorization_hold issuing_authorization_release issuing_dispute
issuing_transaction issuing_disbursement issuing_dispute_reversal obligation_outbound obligation_reversal_inbound
inbound_transfer inbound_transfer_reversal balance_transfer_inbound balance_transfer_outbound`

func stripeTypes() map[string]Type {
	types := map[string]Type{"charge": Charge, "payment": Charge, "refund": Refund, "payment_refund": Refund}
	for name := range strings.FieldsSeq(stripeSkipped) {
		types[name] = Skip
	}
	return types
}
