package portable

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

// isText tells whether a column of type text takes it. Engines refuse what is not UTF-8
// and what holds a zero byte, or worse, cut it off there.
func isText(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// field is a text that a caller gave, by its name.
type field struct{ name, text string }

// checkText names the fields that are no text.
func checkText(fields ...field) error {
	var errs []error
	for _, f := range fields {
		if !isText(f.text) {
			errs = append(errs, &onlyonce.Error{
				Code: onlyonce.CodeConfig, Op: "check text",
				Hint: fmt.Sprintf("%s must be UTF-8 without zero bytes, got %.100q", f.name, f.text),
			})
		}
	}
	return errors.Join(errs...)
}

// checkArgs is checkText for what comes to a statement, the texts of keys above all.
func checkArgs(args []any) error {
	if slices.ContainsFunc(args, func(arg any) bool { text, ok := arg.(string); return ok && !isText(text) }) {
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "check text",
			Hint: "a text must be UTF-8 without zero bytes: look at the scope and the value of the key",
		}
	}
	return nil
}

// claimText checks what Validate does not. Both must be called: keys and resources are
// its.
func claimText(req onlyonce.ClaimRequest) error {
	return checkText(field{"ClaimRequest.Operation", req.Operation},
		field{"ClaimRequest.Fingerprint.Version.Secret", req.Fingerprint.Version.Secret},
		field{"ClaimRequest.Fingerprint.Version.Policy", req.Fingerprint.Version.Policy})
}

func intentText(in onlyonce.Intent) error {
	return checkText(field{"Intent.Name", in.Name}, field{"Intent.Provider", in.Provider},
		field{"Intent.DerivedKey", in.DerivedKey}, field{"Intent.Reference", in.Reference})
}

// operationsText checks the names of operations that are asked for.
func operationsText(operations []string) error {
	var fields []field
	for _, operation := range operations {
		fields = append(fields, field{"DueRequest.Operations", operation})
	}
	return checkText(fields...)
}
