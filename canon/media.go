package canon

import (
	"mime"
	"net/http"
	"strings"
)

// The kinds of content, as they go into digests and part names.
const (
	kindBytes     = 'B'
	kindJSON      = 'J'
	kindForm      = 'F'
	kindMultipart = 'M'
	kindQuery     = 'Q'
	kindHeader    = 'H'
	kindMethod    = 'm'
	kindPath      = 'p'
	kindType      = 'c'
)

// media is what a content type says.
type media struct {
	text     string // what counts of it
	kind     byte   // how to read the body
	boundary string
}

// parseMedia reads the content type of a request. The charset counts unless it
// is UTF-8, no other parameter does. A body in another charset is compared by
// its bytes, for an escape and the bytes it would stand for are not the same
// text there.
func parseMedia(h http.Header) media {
	values := h["Content-Type"]
	switch {
	case len(values) == 0:
		return media{kind: kindBytes}
	case len(values) > 1:
		return media{text: strings.Join(values, "\n"), kind: kindBytes}
	case values[0] == "application/json":
		return media{text: values[0], kind: kindJSON}
	}
	name, params, err := mime.ParseMediaType(values[0])
	if err != nil {
		return media{text: strings.TrimSpace(values[0]), kind: kindBytes}
	}
	m := media{text: name, kind: kindBytes, boundary: params["boundary"]}
	charset, foreign := params["charset"]
	if foreign = foreign && !strings.EqualFold(charset, "utf-8"); foreign {
		m.text += ";charset=" + strings.ToLower(charset)
	}
	switch {
	case name == "multipart/form-data" && m.boundary != "":
		m.kind = kindMultipart
	case foreign:
	case name == "application/json" || strings.HasSuffix(name, "+json"):
		m.kind = kindJSON
	case name == "application/x-www-form-urlencoded":
		m.kind = kindForm
	}
	return m
}
