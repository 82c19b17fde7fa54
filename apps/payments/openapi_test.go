package payments_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
)

func document(t *testing.T, text []byte) *v3.Document {
	t.Helper()
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	return &model.Model
}

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{config: payments.Config{Retention: time.Hour}})
	served := b.get(t, "/openapi.json").want(t, 200, "")
	doc := document(t, []byte(served.body))
	if doc.Version != "3.1.0" {
		t.Errorf("version is %s", doc.Version)
	}
	patterns := b.service.Patterns()
	var documented []string
	for path, item := range doc.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			if op.OperationId == "" || op.Summary == "" {
				t.Errorf("%s %s has no id or summary", method, path)
			}
			keyed := op.Extensions != nil && op.Extensions.Len() > 0
			if keyed != (method == "post") {
				t.Errorf("%s %s: keyed is %t", method, path, keyed)
			}
			if keyed && !strings.Contains(served.body, `"retention_seconds": 3600`) {
				t.Errorf("the document does not say how long answers are kept")
			}
		}
	}
	slices.Sort(patterns)
	slices.Sort(documented)
	if !slices.Equal(patterns, documented) {
		t.Errorf("routes are\n%v\ndocumented are\n%v", patterns, documented)
	}
}

// What the document allows is read, and what it forbids is refused, by its
// field, at the limits of every member of every request.
func TestOpenAPIAgreesWithRequests(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{})
	doc := document(t, payments.OpenAPI(time.Hour))
	keys := 0
	for path, item := range doc.Paths.PathItems.FromOldest() {
		if item.Post == nil {
			continue
		}
		media, _ := item.Post.RequestBody.Content.Get("application/json")
		schema := media.Schema.Schema()
		valid := object(t, schema)
		for name, c := range cases(t, schema, valid, "") {
			keys++
			r := b.post(t, path, "k"+strconv.Itoa(keys), c.body)
			refused := r.status == http.StatusBadRequest
			if refused != (c.field != "") || (refused && r.text(t, "field") != c.field) {
				t.Errorf("%s: %s: %d %s; field %q is to be refused\n%s", path, name, r.status, r.body, c.field, c.body)
			}
		}
	}
}

// asked is a request, and the field that is wrong with it, if any.
type asked struct{ body, field string }

// cases are requests at the limits of a schema.
func cases(t *testing.T, schema *base.Schema, valid map[string]any, prefix string) map[string]asked {
	t.Helper()
	all := map[string]asked{prefix + "valid": {body: text(t, valid)}}
	change := func(name, field string, fn func(m map[string]any)) {
		m := maps.Clone(valid)
		fn(m)
		all[prefix+name] = asked{body: text(t, m), field: field}
	}
	if schema.AdditionalProperties == nil || schema.AdditionalProperties.B {
		t.Errorf("%sunknown members are allowed", prefix)
	}
	change("unknown", "unknown", func(m map[string]any) { m["unknown"] = 1 })
	for name, proxy := range schema.Properties.FromOldest() {
		s := proxy.Schema()
		field := ""
		if slices.Contains(schema.Required, name) {
			field = name
		}
		change("without "+name, field, func(m map[string]any) { delete(m, name) })
		change("null "+name, name, func(m map[string]any) { m[name] = nil })
		change("wrong type of "+name, name, func(m map[string]any) { m[name] = true })
		for value, wrong := range limits(s) {
			field := ""
			if wrong {
				field = name
			}
			change(fmt.Sprintf("%s %.40s", name, value), field, func(m map[string]any) { m[name] = json.RawMessage(value) })
		}
		if s.Items != nil {
			item := s.Items.A.Schema()
			for inner, c := range cases(t, item, object(t, item), name+" ") {
				field := c.field
				if field != "" {
					field = name + "/0/" + field
				}
				outer := maps.Clone(valid)
				outer[name] = []any{json.RawMessage(c.body)}
				all[prefix+inner] = asked{body: text(t, outer), field: field}
			}
		}
	}
	return all
}

// limits are values of a schema, and whether they are wrong.
func limits(s *base.Schema) map[string]bool {
	values := map[string]bool{}
	if s.Minimum != nil {
		values[strconv.FormatInt(int64(*s.Minimum), 10)] = false
		values[strconv.FormatInt(int64(*s.Minimum)-1, 10)] = true
		values[strconv.FormatInt(int64(*s.Maximum), 10)] = false
		values[strconv.FormatInt(int64(*s.Maximum)+1, 10)] = true
		values[strconv.FormatInt(int64(*s.Minimum), 10)+".0"] = true
	}
	if s.MaxLength != nil && s.Pattern == "" {
		values[strconv.Quote(strings.Repeat("é", int(*s.MaxLength)))] = false
		values[strconv.Quote(strings.Repeat("é", int(*s.MaxLength)+1))] = true
		values[`""`] = s.MinLength != nil && *s.MinLength > 0
	}
	if s.Pattern != "" {
		for _, v := range []string{"ARS", "ars", "AR", "ARSX", ""} {
			values[strconv.Quote(v)] = !regexp.MustCompile(s.Pattern).MatchString(v)
		}
	}
	if s.MaxProperties != nil {
		many := map[string]string{}
		for i := range int(*s.MaxProperties) {
			many[strconv.Itoa(i)] = ""
		}
		full, _ := json.Marshal(many)
		values[string(full)] = false
		many["more"] = ""
		more, _ := json.Marshal(many)
		values[string(more)] = true
		values[fmt.Sprintf(`{%q:""}`, strings.Repeat("n", int(*s.PropertyNames.Schema().MaxLength)+1))] = true
	}
	if s.MinItems != nil {
		values["[]"] = true
	}
	return values
}

// object is a valid object of the members' examples.
func object(t *testing.T, schema *base.Schema) map[string]any {
	t.Helper()
	m := map[string]any{}
	for name, proxy := range schema.Properties.FromOldest() {
		s := proxy.Schema()
		switch {
		case s.Items != nil:
			m[name] = []any{object(t, s.Items.A.Schema())}
		case len(s.Examples) > 0:
			var v any
			if err := s.Examples[0].Decode(&v); err != nil {
				t.Fatal(err)
			}
			m[name] = v
		}
	}
	return m
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
