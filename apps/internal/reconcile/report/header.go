package report

import (
	"fmt"
	"strings"
)

// maxColumns bounds a header.
const maxColumns = 1000

// columns are the places of the fields in a record.
type columns struct {
	names []string
	at    map[Field]int
}

// find looks for the columns of a format in a header.
func (f Format) find(header []string) (columns, error) {
	c := columns{at: map[Field]int{}}
	if len(header) > maxColumns {
		return c, &Error{Line: 1, Text: fmt.Sprintf("the header has %d columns, more than %d", len(header), maxColumns), Hint: "is it a CSV file?"}
	}
	byName := map[string][]int{}
	for i, name := range header {
		c.names = append(c.names, strings.TrimSpace(name))
		key := strings.ToLower(c.names[i])
		byName[key] = append(byName[key], i)
	}
	var missing []string
	for _, field := range fields {
		at, err := place(byName, f.Columns[field.name])
		switch {
		case err != nil:
			return c, err
		case at >= 0:
			c.at[field.name] = at
		case field.required:
			missing = append(missing, fmt.Sprintf("%s (%s)", field.name, strings.Join(f.Columns[field.name], " or ")))
		}
	}
	if len(missing) > 0 {
		return c, f.missing(missing, c.names)
	}
	return c, nil
}

// place is where the first of the names stands; -1 for nowhere.
func place(byName map[string][]int, names []string) (int, error) {
	for _, name := range names {
		at := byName[strings.ToLower(strings.TrimSpace(name))]
		if len(at) > 1 {
			return -1, &Error{
				Line: 1, Name: name, Text: fmt.Sprintf("the header has this column %d times", len(at)),
				Hint: "leave one of them, for it cannot be known which is meant",
			}
		}
		if len(at) == 1 {
			return at[0], nil
		}
	}
	return -1, nil
}

// missing lists what there is instead.
func (f Format) missing(missing, names []string) error {
	there := make([]string, len(names))
	for i, name := range names {
		there[i] = fmt.Sprintf("%q", clip(name))
	}
	e := &Error{
		Line: 1,
		Text: fmt.Sprintf("no column for %s; there are %s", strings.Join(missing, ", "), strings.Join(there, ", ")),
		Hint: "choose another --format, or name the columns: --columns type=…,id=…,reference=…,amount=…,currency=…,created=…",
	}
	if len(names) == 1 && strings.ContainsAny(names[0], ";\t|") {
		e.Hint = "another character than the comma separates its columns: give it as --separator"
	}
	return e
}

// clip shortens what is shown of a report.
func clip(text string) string {
	const most = 60
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
