package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Type is what a row has done with a customer's money.
type Type string

// The types of rows that are compared.
const (
	Charge Type = "charge"
	Refund Type = "refund"
	// Skip rows move no customer's money: they are counted, and passed over.
	Skip Type = "skip"
)

// Field is something that is read from a row.
type Field string

// The fields. Those for refunds are read instead of the others in rows that are
// refunds, where a report has both in one line.
const (
	FieldType            Field = "type"
	FieldID              Field = "id"
	FieldReference       Field = "reference"
	FieldAmount          Field = "amount"
	FieldCurrency        Field = "currency"
	FieldCreated         Field = "created"
	FieldRefundID        Field = "refund_id"
	FieldRefundReference Field = "refund_reference"
	// What the customer was charged, where the other two say what was settled.
	FieldPresentedAmount   Field = "presented_amount"
	FieldPresentedCurrency Field = "presented_currency"
)

// fieldInfo is a field and whether a report must have it.
type fieldInfo struct {
	name     Field
	required bool
}

// fields are all of them.
var fields = []fieldInfo{
	{FieldType, true},
	{FieldID, true},
	{FieldAmount, true},
	{FieldCurrency, true},
	{FieldCreated, true},
	{FieldReference, false},
	{FieldRefundID, false},
	{FieldRefundReference, false},
	{FieldPresentedAmount, false},
	{FieldPresentedCurrency, false},
}

// Format says how to read a report.
type Format struct {
	// Name is for people.
	Name string
	// Provider is who writes such reports, as steps name it.
	Provider string
	// Columns are the names that a field's column may have, in order of
	// preference. Case and surrounding spaces do not matter.
	Columns map[Field][]string
	// Types says what the values of the type's column mean, in lower case.
	// What is not here is reported, never passed over in silence.
	Types map[string]Type
	// Major: amounts are decimal numbers of the currency's major unit, such as
	// 15.00. Else they are whole numbers of its minor unit.
	Major bool
	// RefundReference: a refund's own reference is in FieldRefundReference or
	// nowhere, for FieldReference is that of the charge.
	RefundReference bool
	// Separator stands between fields; 0 is a comma.
	Separator rune
}

// The formats that are known by name.
const (
	FormatProcessor = "processor"
	FormatStripe    = "stripe"
	FormatColumns   = "columns"
)

// Named returns a known format.
func Named(name string) (Format, error) {
	switch name {
	case FormatProcessor:
		return processorFormat(), nil
	case FormatStripe:
		return stripeFormat(), nil
	default:
		return Format{}, fmt.Errorf("there is no format %q: use %s or %s, or name the columns", name, FormatProcessor, FormatStripe)
	}
}

// processorFormat is what the simulated processor writes.
func processorFormat() Format {
	return Format{
		Name: FormatProcessor, Provider: "processor", Types: plainTypes(),
		Columns: map[Field][]string{
			FieldType: {"type"}, FieldID: {"id"}, FieldReference: {"reference"}, FieldAmount: {"amount"},
			FieldCurrency: {"currency"}, FieldCreated: {"created_at"},
		},
	}
}

func plainTypes() map[string]Type { return map[string]Type{"charge": Charge, "refund": Refund} }

// WithColumns is a format of one's own: pairs of a field and its column. All
// required fields must be there.
func WithColumns(columns map[string]string) (Format, error) {
	f := Format{Name: FormatColumns, Columns: map[Field][]string{}, Types: plainTypes(), Major: true}
	for name, column := range columns {
		if !slices.ContainsFunc(fields, func(known fieldInfo) bool { return known.name == Field(name) }) {
			return Format{}, fmt.Errorf("there is no field %q; the fields are %s", name, fieldNames())
		}
		if strings.TrimSpace(column) == "" {
			return Format{}, fmt.Errorf("field %q has no column", name)
		}
		f.Columns[Field(name)] = []string{column}
	}
	for _, known := range fields {
		if known.required && f.Columns[known.name] == nil {
			return Format{}, fmt.Errorf("field %q has no column: name it as %s=COLUMN", known.name, known.name)
		}
	}
	_, f.RefundReference = f.Columns[FieldRefundReference]
	return f, nil
}

func fieldNames() string {
	var names []string
	for _, f := range fields {
		names = append(names, string(f.name))
	}
	return strings.Join(names, ", ")
}

// WithTypes returns the format with the meaning of some types changed or added.
func (f Format) WithTypes(types map[string]string) (Format, error) {
	f.Types = maps.Clone(f.Types)
	for name, meaning := range types {
		switch t := Type(meaning); t {
		case Charge, Refund, Skip:
			f.Types[strings.ToLower(strings.TrimSpace(name))] = t
		default:
			return Format{}, fmt.Errorf("type %q cannot mean %q: it is a %s, a %s, or to %s", name, meaning, Charge, Refund, Skip)
		}
	}
	return f, nil
}
