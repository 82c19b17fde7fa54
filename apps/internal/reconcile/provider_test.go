package reconcile_test

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
)

// encoder makes the bytes that steps record.
type encoder interface {
	EncodeCharge(req provider.ChargeRequest) ([]byte, error)
	EncodeRefund(req provider.RefundRequest) ([]byte, error)
}

// What an adapter records is understood, as it was asked for.
func TestDecode(t *testing.T) {
	t.Parallel()
	stripe, err := stripeproc.New(stripeproc.Config{Key: "sk_test_1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		encoder encoder
		reads   reconcile.Provider
		source  string
		charge  string
		refund  reconcile.Asked
	}{
		"the processor": {&processor.Provider{}, reconcile.Processor(), "tok_visa", "pc_1", reconcile.Asked{Amount: 500, Charge: "pc_1"}},
		"stripe":        {stripe, reconcile.Stripe(), "pm_1", "pi_1", reconcile.Asked{Amount: 500, Charge: "pi_1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request, err := tt.encoder.EncodeCharge(provider.ChargeRequest{Amount: 1500, Currency: "ARS", Source: tt.source, Reference: "oo_1"})
			if err != nil {
				t.Fatal(err)
			}
			asked, err := tt.reads.Decode(report.Charge, request)
			if want := (reconcile.Asked{Amount: 1500, Currency: "ARS"}); asked != want || err != nil {
				t.Errorf("%+v, %v; want %+v", asked, err, want)
			}
			request, err = tt.encoder.EncodeRefund(provider.RefundRequest{Charge: tt.charge, Amount: 500, Currency: "ARS", Reference: "oo_2"})
			if err != nil {
				t.Fatal(err)
			}
			if asked, err := tt.reads.Decode(report.Refund, request); asked != tt.refund || err != nil {
				t.Errorf("%+v, %v; want %+v", asked, err, tt.refund)
			}
			for _, odd := range []string{"", "{", "amount=x", "%zz", `{"amount":1,"more":2}`} {
				if asked, err := tt.reads.Decode(report.Charge, []byte(odd)); err == nil {
					t.Errorf("%q is read as %+v", odd, asked)
				}
			}
		})
	}
}

// What Stripe counts in another unit is left to a person, and so is what is named
// otherwise than the adapter does.
func TestStripeOnly(t *testing.T) {
	t.Parallel()
	s := reconcile.Stripe()
	for request, typ := range map[string]report.Type{
		"amount=150000&currency=isk": report.Charge, "amount=15&currency=mga": report.Charge,
		"amount=15": report.Charge, "amount=15&currency=usd": report.Refund,
	} {
		if asked, err := s.Decode(typ, []byte(request)); err == nil {
			t.Errorf("%s is read as %+v", request, asked)
		}
	}
	for id, want := range map[string]bool{"pi_1": true, "ch_1": false, "py_1": false, "": false} {
		if s.Names(report.Charge, id) != want {
			t.Errorf("charge %q: %t", id, !want)
		}
	}
	for id, want := range map[string]bool{"re_1": true, "pyr_1": true, "ch_1": false} {
		if s.Names(report.Refund, id) != want {
			t.Errorf("refund %q: %t", id, !want)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	err := reconcile.Config{Heal: true, Visible: -1}.Validate()
	for _, field := range []string{"DB", "Report", "Format", "Provider", "Actor", "Engine", "Recover", "Visible"} {
		if err == nil || !strings.Contains(err.Error(), "config "+field+": ") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
	if _, err := reconcile.Run(t.Context(), reconcile.Config{}); err == nil {
		t.Error("an empty configuration runs")
	}
}
