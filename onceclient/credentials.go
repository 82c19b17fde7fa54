package onceclient

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Credentials are the headers that are known to be credentials. [IsCredential] tells more
// of them.
func Credentials() []string {
	return []string{
		"Authorization", "Proxy-Authorization", "Cookie",
		"X-Api-Key", "Api-Key", "Apikey", "X-Goog-Api-Key", "X-Functions-Key", "Ocp-Apim-Subscription-Key",
		"X-Auth-Token", "X-Access-Token", "X-Auth-Key", "X-Amz-Security-Token", "X-Csrf-Token", "X-Xsrf-Token",
	}
}

// IsCredential tells whether a header of a request is taken for a credential: it is sent,
// but never kept in a journal, and does not go to another origin. Those are Credentials()
// and what is named like one: a token, secret, session, signature, password or cookie, or
// something -key. Config.Credentials come on top. A header for idempotency keys is none.
func IsCredential(name string) bool {
	if slices.Contains(Credentials(), http.CanonicalHeaderKey(name)) {
		return true
	}
	name = strings.ToLower(name)
	if strings.Contains(name, "idempot") {
		return false
	}
	for _, word := range []string{"authoriz", "authentic", "x-auth", "cookie", "token", "secret", "password", "credential", "apikey", "signature", "session"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return strings.HasSuffix(name, "-key")
}

// secret tells whether a header is a credential for this client.
func (c Config) secret(name string) bool {
	same := func(other string) bool { return strings.EqualFold(name, other) }
	return !same(c.KeyHeader) && (IsCredential(name) || slices.ContainsFunc(c.Credentials, same))
}

// Origin is whom a URL talks to: its scheme, host and port, however they are written.
// It is empty of a text that is no absolute URL.
func Origin(target string) string {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return ""
	}
	return origin(u)
}

func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
