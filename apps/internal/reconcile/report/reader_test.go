package report_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
)

// named is a format that must be there.
func named(tb testing.TB, name string) report.Format {
	tb.Helper()
	f, err := report.Named(name)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// own is a format of columns that a user has named.
func own(tb testing.TB, columns map[string]string) report.Format {
	tb.Helper()
	f, err := report.WithColumns(columns)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// all reads a report to its end.
func all(text string, f report.Format) ([]report.Row, report.Stats, error) {
	r, err := report.NewReader(strings.NewReader(text), f)
	if err != nil {
		return nil, report.Stats{}, err
	}
	var rows []report.Row
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rows, r.Stats(), nil
		}
		if err != nil {
			return nil, r.Stats(), err
		}
		rows = append(rows, row)
	}
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

const processorHeader = "type,id,reference,charge,amount,currency,created_at\n"

// The formats, and what people do to files.
func TestRead(t *testing.T) { // X2
	t.Parallel()
	charge := report.Row{
		Line: 2, Type: report.Charge, ID: "pc_1", Reference: "oo_1", Amount: 1500, Currency: "ARS", Shown: "15.00 ARS",
		Created: at("2026-01-31T10:00:00.5Z"),
	}
	refund := report.Row{
		Line: 3, Type: report.Refund, ID: "rf_1", Reference: "oo_2", Amount: 500, Currency: "ARS", Shown: "5.00 ARS",
		Created: at("2026-01-31T11:00:00Z"),
	}
	plain := processorHeader + "charge,pc_1,oo_1,,1500,ARS,2026-01-31T10:00:00.5Z\nrefund,rf_1,oo_2,pc_1,500,ARS,2026-01-31T11:00:00Z\n"
	processor := named(t, report.FormatProcessor)
	for name, tt := range map[string]struct {
		text   string
		format report.Format
		want   []report.Row
	}{
		"the processor's":              {plain, processor, []report.Row{charge, refund}},
		"a mark before UTF-8":          {"\ufeff" + plain, processor, []report.Row{charge, refund}},
		"lines that end with CR LF":    {strings.ReplaceAll(plain, "\n", "\r\n"), processor, []report.Row{charge, refund}},
		"no line end at the end":       {strings.TrimSuffix(plain, "\n"), processor, []report.Row{charge, refund}},
		"quotes":                       {strings.ReplaceAll(plain, "pc_1,oo_1", `"pc_1","oo_1"`), processor, []report.Row{charge, refund}},
		"spaces, and other upper case": {strings.Replace(strings.ReplaceAll(plain, ",ARS", ", ars "), "type,id", "Type, ID ", 1), processor, []report.Row{charge, refund}},
		"nothing but a header":         {processorHeader, processor, nil},
		"a refund with a minus":        {strings.ReplaceAll(plain, ",500,", ",-500,"), processor, []report.Row{charge, refund}},
		"another order, and more columns": {
			"created_at,note,currency,amount,reference,id,type\n2026-01-31T10:00:00.5Z,\"two\nlines\",ARS,1500,oo_1,pc_1,charge\n", processor, []report.Row{charge},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, stats, err := all(tt.text, tt.format)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, rows); diff != "" {
				t.Error(diff)
			}
			if stats.Rows != int64(len(tt.want)) || stats.Bytes != int64(len(tt.text)) {
				t.Errorf("it counts %d rows and %d of %d bytes", stats.Rows, stats.Bytes, len(tt.text))
			}
		})
	}
}

// Stripe's export of all activity, as the Dashboard gives it.
const stripeActivity = "\ufeffid,Type,Source,Amount,Fee,Net,Currency,Created (UTC),Available On (UTC),Description,Customer Facing Amount,Customer Facing Currency,Transfer,Transfer Date (UTC),Transfer Group,onlyonce_reference (metadata)\r\n" +
	`txn_1,charge,ch_1,"1,250.00",39.25,1210.75,usd,2026-01-30 09:15,2026-02-01 00:00,"Order 7, paid",1250.00,usd,,,,oo_1` + "\r\n" +
	"txn_2,charge,ch_2,9.10,0.62,8.48,usd,2026-01-30 09:16:30,2026-02-01 00:00,,1400,jpy,,,,oo_2\r\n" +
	"txn_3,refund,re_1,-20.00,0.00,-20.00,usd,2026-01-30 10:00,2026-01-30 00:00,REFUND FOR CHARGE,-20.00,usd,,,,oo_1\r\n" +
	"txn_4,payout,po_1,-1190.75,0.00,-1190.75,usd,2026-01-31 00:00,2026-01-31 00:00,STRIPE PAYOUT,,,po_1,2026-02-02 00:00,,\r\n" +
	"txn_5,stripe_fee,,-2.00,0.00,-2.00,usd,2026-01-31 00:00,2026-01-31 00:00,Billing,,,,,,\r\n" +
	"txn_6,adjustment,du_1,-15.00,15.00,-30.00,usd,2026-01-31 00:00,2026-01-31 00:00,Chargeback,,,,,,\r\n" +
	"txn_7,refund_failure,re_0,20.00,0.00,20.00,usd,2026-01-31 00:00,2026-01-31 00:00,,,,,,,\r\n"

// Stripe's itemized report, as the API gives it.
const stripeItemized = "balance_transaction_id,created_utc,currency,gross,fee,net,reporting_category,source_id,payment_intent_id,customer_facing_amount,customer_facing_currency,payment_metadata[onlyonce_reference],refund_metadata[onlyonce_reference]\n" +
	"txn_1,2026-01-30 09:15:00,usd,12.50,0.66,11.84,charge,ch_1,pi_1,12.50,usd,oo_1,\n" +
	"txn_2,2026-01-30 10:00:00,usd,-12.50,0.00,-12.50,refund,re_1,pi_1,-12.50,usd,oo_1,oo_r\n" +
	"txn_3,2026-01-30 11:00:00,usd,-3.00,0.00,-3.00,fee,,,,,,\n"

func TestReadStripe(t *testing.T) { // X2
	t.Parallel()
	stripe := named(t, report.FormatStripe)
	rows, stats, err := all(stripeActivity, stripe)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]report.Row{
		{Line: 2, Type: report.Charge, ID: "ch_1", Reference: "oo_1", Amount: 125000, Currency: "USD", Shown: "1250.00 USD", Created: at("2026-01-30T09:15:00Z")},
		{Line: 3, Type: report.Charge, ID: "ch_2", Reference: "oo_2", Amount: 1400, Currency: "JPY", Shown: "1400 JPY", Created: at("2026-01-30T09:16:30Z")},
		// The metadata may be the charge's: it is not taken for the refund's.
		{Line: 4, Type: report.Refund, ID: "re_1", Amount: 2000, Currency: "USD", Shown: "20.00 USD", Created: at("2026-01-30T10:00:00Z")},
	}, rows); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int64{"payout": 1, "stripe_fee": 1, "adjustment": 1}, stats.Skipped); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]report.Unknown{"refund_failure": {Rows: 1, Line: 8}}, stats.Unknown); diff != "" {
		t.Error(diff)
	}

	rows, stats, err = all(stripeItemized, stripe)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]report.Row{
		{Line: 2, Type: report.Charge, ID: "pi_1", Reference: "oo_1", Amount: 1250, Currency: "USD", Shown: "12.50 USD", Created: at("2026-01-30T09:15:00Z")},
		{Line: 3, Type: report.Refund, ID: "re_1", Reference: "oo_r", Amount: 1250, Currency: "USD", Shown: "12.50 USD", Created: at("2026-01-30T10:00:00Z")},
	}, rows); diff != "" {
		t.Error(diff)
	}
	if stats.Skipped["fee"] != 1 || !stats.Oldest.Equal(at("2026-01-30T09:15:00Z")) || !stats.Newest.Equal(at("2026-01-30T10:00:00Z")) {
		t.Errorf("it has seen %+v", stats)
	}
}

// A report can say our reference for charges and not for refunds.
func TestHas(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{
		processorHeader: {true, true},
		stripeActivity:  {true, false},
		stripeItemized:  {true, true},
	} {
		f := named(t, report.FormatStripe)
		if text == processorHeader {
			f = named(t, report.FormatProcessor)
		}
		r, err := report.NewReader(strings.NewReader(text), f)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]bool{r.Has(report.Charge), r.Has(report.Refund)}; got != want {
			t.Errorf("%.20s has references for %v, want %v", text, got, want)
		}
	}
}

// Columns that a user names, in major units unless he says otherwise.
func TestReadOwnColumns(t *testing.T) {
	t.Parallel()
	f := own(t, map[string]string{
		"type": "Kind", "id": "Txn", "reference": "reference (metadata)", "amount": "Gross", "currency": "Currency", "created": "When",
	})
	f, err := f.WithTypes(map[string]string{"Sale": "charge", "Return": "refund", "Fee": "skip"})
	if err != nil {
		t.Fatal(err)
	}
	f.Separator = ';'
	rows, stats, err := all("Txn;Kind;Gross;Currency;When;reference (metadata)\na;SALE;1.5;BHD;2026-01-31;r1\nb;return;-1.500;BHD;2026-01-31T00:00:01;\nc;Fee;x;;;\n", f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]report.Row{
		{Line: 2, Type: report.Charge, ID: "a", Reference: "r1", Amount: 1500, Currency: "BHD", Shown: "1.500 BHD", Created: at("2026-01-31T00:00:00Z")},
		{Line: 3, Type: report.Refund, ID: "b", Amount: 1500, Currency: "BHD", Shown: "1.500 BHD", Created: at("2026-01-31T00:00:01Z")},
	}, rows); diff != "" {
		t.Error(diff)
	}
	if stats.Skipped["Fee"] != 1 {
		t.Errorf("skipped: %v", stats.Skipped)
	}
}

// An unknown currency is no fault of the report: it can be read, and reported.
func TestReadUnknownCurrency(t *testing.T) {
	t.Parallel()
	rows, _, err := all(processorHeader+"charge,pc_1,oo_1,,1500,XXX,2026-01-31T10:00:00Z\n", named(t, report.FormatProcessor))
	if err != nil || len(rows) != 1 || !rows[0].UnknownCurrency || rows[0].Shown != "1500 XXX" {
		t.Errorf("%+v, %v", rows, err)
	}
}

// The hash is that of the file, whatever is read of it, however it comes.
func TestSum(t *testing.T) {
	t.Parallel()
	r, err := report.NewReader(iotest.OneByteReader(strings.NewReader(stripeActivity)), named(t, report.FormatStripe))
	for err == nil {
		_, err = r.Next()
	}
	want := sha256.Sum256([]byte(stripeActivity))
	if !errors.Is(err, io.EOF) || r.Sum() != hex.EncodeToString(want[:]) {
		t.Errorf("the hash is %s, %v", r.Sum(), err)
	}
}

// An input that fails is not taken for one that has ended.
func TestReadFailure(t *testing.T) {
	t.Parallel()
	failure := errors.New("disk on fire")
	for _, whole := range []string{"", "type,id", processorHeader, processorHeader + "charge,pc_1,oo_1,,1500,ARS,2026-01-31T10:00:00Z\ncharge,pc"} {
		r, err := report.NewReader(io.MultiReader(strings.NewReader(whole), iotest.ErrReader(failure)), named(t, report.FormatProcessor))
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, failure) {
			t.Errorf("behind %q: %v", whole, err)
		}
	}
}

// What is read does not change when the next row is.
func TestRowsAreTheirOwn(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString(processorHeader)
	for i := range 100 {
		fmt.Fprintf(&text, "charge,pc_%d,oo_%d,,%d,ARS,2026-01-31T10:00:00Z\n", i, i, i)
	}
	rows, _, err := all(text.String(), named(t, report.FormatProcessor))
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if row.ID != fmt.Sprintf("pc_%d", i) || row.Reference != fmt.Sprintf("oo_%d", i) || row.Amount != int64(i) || row.Line != i+2 {
			t.Fatalf("row %d is %+v", i, row)
		}
	}
}

func TestFormatsRefused(t *testing.T) {
	t.Parallel()
	if _, err := report.Named("paypal"); err == nil || !strings.Contains(err.Error(), "processor or stripe") {
		t.Errorf("an unknown format gives %v", err)
	}
	full := func(change func(map[string]string)) map[string]string {
		m := map[string]string{"type": "T", "id": "I", "amount": "A", "currency": "C", "created": "W"}
		change(m)
		return m
	}
	for want, columns := range map[string]map[string]string{
		`there is no field "typ"`:                      full(func(m map[string]string) { m["typ"] = "T" }),
		`field "amount" has no column: name it as amo`: full(func(m map[string]string) { delete(m, "amount") }),
		`field "id" has no column`:                     full(func(m map[string]string) { m["id"] = " " }),
	} {
		if _, err := report.WithColumns(columns); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v gives %v, want %q", columns, err, want)
		}
	}
	if _, err := named(t, report.FormatProcessor).WithTypes(map[string]string{"Sale": "money"}); err == nil || !strings.Contains(err.Error(), "cannot mean") {
		t.Errorf("a type without meaning gives %v", err)
	}
}
