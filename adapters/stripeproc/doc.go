// Package stripeproc is a payment provider for onlyonce that charges and refunds
// through Stripe, by its own Go library and the API version that it pins.
//
//	p, err := stripeproc.New(stripeproc.Config{Key: os.Getenv("STRIPE_KEY")})
//	...
//	out, err := provider.Charge(ctx, p, "charge", provider.ChargeRequest{
//		Amount: 1999, Currency: "EUR", Source: "pm_card_visa",
//	})
//
// A charge is a PaymentIntent that is created and confirmed in one request, for
// cards alone: their payments are final at once. Source is the payment method
// ("pm_…"), or for a saved one the customer with it ("cus_…/pm_…"). Nobody is shown
// a bank's page: a card that needs one is declined (error_on_requires_action, or
// off_session where Config says so). A refund is of a PaymentIntent, the ID of a
// charge's Outcome. Both bear our reference in their metadata, as
// onlyonce_reference, and whoever changes it there takes the look-up away.
//
// # What is promised
//
// Over all attempts at a key there is at most one charge, under these conditions,
// each of which Stripe documents:
//
//   - A key is remembered for at least 24 hours, with the first result, errors
//     included, and other parameters under it are refused ("Idempotent requests").
//     Config.Memory stays an hour below; nothing is sent again past it.
//   - Search sees a PaymentIntent in under a minute, and is behind by up to an hour
//     during outages ("Search PaymentIntents"; "Search" sets no bound). Config.Visible
//     is 24 hours: until then a charge that search does not show may be there.
//   - Lists are not behind ("Search", under data freshness), so refunds are listed.
//
// Each call makes one HTTP request and sends it once: no retries, no redirects, no
// telemetry. It goes through package oncecall, which stops net/http from sending a
// request with an Idempotency-Key again on its own, and keeps the send's deadline.
// The bytes that are recorded are the bytes that leave.
//
// # What an answer proves
//
//	200, succeeded                            Succeeded
//	200, canceled, or a failed confirmation   Declined
//	402 card_error                            Declined; Code is the bank's decline code if there is one
//	400 invalid_request_error,                refused, not applied: the same request
//	404 resource_missing                      would be refused again
//	401, 403                                  not applied: the API key is at fault
//	429 rate_limit                            not applied: limiters run before the idempotency layer
//	no connection                             not applied: no byte left
//
// Everything else is unknown, and the key goes in doubt: any 5xx ("Advanced error
// handling": indeterminate), 409 and lock_timeout, 424, an idempotency_error (the key
// has another request's result), a timeout or a reset, a payment that is processing
// or waits for somebody, an answer that is not Stripe's or not about our reference
// (RFC 9110 lets any gateway make one up, 502 and 504 above all). A later attempt
// looks the effect up, or sends the same bytes under the same key, which Stripe
// answers with the stored result. A refusal of a later send proves nothing of the
// first, and the engine does not take it for proof.
//
// A 500 is stored under the key like any result. If no charge was made, the key
// stays in doubt until Config.Visible is over, or a person settles it.
//
// # What is not promised
//
//   - A pending refund counts as succeeded: Stripe has accepted it. Should it fail
//     later, an event (refund.failed) says so, and nothing here.
//   - A decline leaves a PaymentIntent in requires_payment_method. Its client secret
//     is given to nobody here; whoever confirms it by other means charges the card.
//   - A succeeded charge may be disputed or refunded by others later.
//   - A payment that Stripe leaves unconfirmed for good, after an error of its own,
//     has to be settled by a person.
//   - Search is not available to accounts in India: see Config.NoSearch.
//   - Radar, connected accounts' fees and transfers, capturing later, other methods
//     than cards, and API v2 (whose keys work differently) are not covered.
//
// # Amounts
//
// Amounts are in ISO 4217's minor units everywhere and are converted where Stripe
// counts otherwise ("Supported currencies"): ISK and UGX, which have no decimals, are
// sent in hundredths; MGA, which has two, is sent in whole units and has to be whole.
// The three decimals of BHD, JOD, KWD, OMR and TND must end in 0. HUF and TWD are
// whole only for payouts. IQD, LYD, CLF, UYW and UYI are refused: their unit at Stripe
// is not documented. Nothing is rounded.
//
// # Secrets
//
// The API key and client secrets are in no error, log line or printed Config. Answers
// are kept by nobody; stripe-go's logger is switched off.
//
// Sources, by their titles at docs.stripe.com: "Idempotent requests", "Advanced error
// handling", "Errors", "Error codes", "Rate limits", "Search", "Search PaymentIntents",
// "Metadata", "Supported currencies", "Migrate your basic card integration", "The
// Refund object". And RFC 9110, section 9.2.2 (repeating requests) and 15.6 (server
// errors).
package stripeproc
