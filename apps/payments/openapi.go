package payments

import (
	"bytes"
	_ "embed"
	"fmt"
	"net/http"
	"time"
)

// openapi is the API's description, an OpenAPI 3.1 document. A test holds it
// against the routes and what they accept.
//
//go:embed openapi.json
var openapi []byte

// OpenAPI is the API's description, an OpenAPI 3.1 document in JSON, of a
// service that replays answers for so long.
func OpenAPI(retention time.Duration) []byte {
	const written = `"retention_seconds": 86400`
	is := fmt.Sprintf(`"retention_seconds": %d`, int64(retention/time.Second))
	return bytes.ReplaceAll(openapi, []byte(written), []byte(is))
}

func (s *Service) serveOpenAPI() http.HandlerFunc {
	document := OpenAPI(s.cfg.Retention)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document) // the caller is gone
	}
}
