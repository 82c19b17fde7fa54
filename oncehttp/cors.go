package oncehttp

import (
	"net/http"
	"strings"
)

// CORS lets browsers of allowed origins send keys and see what became of them
// (rule R5): it answers preflight requests itself and exposes the headers of
// the protocol. It goes outside the guard, since CORS headers are never stored.
// allow must not admit origins it does not know; further headers that requests
// may carry are named in more.
func CORS(next http.Handler, allow func(origin string) bool, more ...string) http.Handler {
	requestHeaders := strings.Join(append([]string{HeaderKey, "Content-Type"}, more...), ", ")
	exposed := strings.Join(append(ownHeaders(), HeaderShouldRetry, "Retry-After", "Location", "Link"), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if origin == "" || !allow(origin) {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			h.Set("Access-Control-Expose-Headers", exposed)
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
		h.Set("Access-Control-Allow-Headers", requestHeaders)
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	})
}
