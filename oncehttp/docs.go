package oncehttp

import (
	"bytes"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// docsPage is the layout of all pages.
const docsPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{{.Title}}</title>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
{{- if .Status}}
<p>Status {{.Status}}, <code>error</code>: <code>{{.Code}}</code>, <code>retry_with</code>: <code>{{.With}}</code>.</p>
<p><a href="./">All problems</a></p>
{{- else}}
<ul>
{{- range .Problems}}
<li><a href="{{.Code}}">{{.Code}}</a>: {{.Title}}</li>
{{- end}}
</ul>
{{- end}}
</html>
`

const docsIntroduction = "Send an Idempotency-Key header with every request that changes something: " +
	"a random value, made once for each operation and sent again with every retry of it. " +
	"The operation takes effect at most once for each key, and a retry gets the first answer again, marked with Idempotent-Replayed: true, " +
	"until the time in Idempotency-Expires. Retry with growing, random pauses, and never before the time in Retry-After. " +
	"Follow retry_with and X-Should-Retry, not the status: of the conflicts (409), request_in_progress, outcome_unknown and resource_busy are to be retried with the same key; a conflict of the operation's own is its answer."

// page is what a page shows.
type page struct {
	Code, Title, Text, With, Status string
	Problems                        []page
}

// DocsHandler serves a page for each problem type and one that lists them, so
// that the problems' type URIs resolve. Mount it on the path of DocsURL:
// mux.Handle("GET /docs/", g.DocsHandler()). It looks at the last segment of
// the path only.
func (g *Guard) DocsHandler() http.Handler {
	layout := template.Must(template.New("page").Parse(docsPage))
	all := kinds()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := page{Title: "Idempotency", Text: docsIntroduction}
		if name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]; name != "" {
			i := slices.IndexFunc(all, func(k kind) bool { return string(k.code) == name })
			if i < 0 {
				http.NotFound(w, r)
				return
			}
			shown = all[i].page()
		} else {
			for _, k := range all {
				shown.Problems = append(shown.Problems, k.page())
			}
		}
		var b bytes.Buffer
		if err := layout.Execute(&b, shown); err != nil {
			g.log(r.Context(), err)
			http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "public, max-age=3600")
		w.Write(b.Bytes()) //nolint:errcheck // the caller is gone
	})
}

func (k kind) page() page {
	status := strconv.Itoa(k.status)
	if k.code == CodeNotRetained {
		status = "that of the first answer"
	}
	return page{Code: string(k.code), Title: k.title, Text: k.text, With: string(k.with), Status: status}
}
