package cli

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// mask stands where a password was.
const mask = "xxxxx"

// shortSecret is the length below which a part of a password is not looked for by
// itself: it would be found in every other word.
const shortSecret = 4

// secretsOf are the passwords in the URLs among some words, and their parts: one that
// was not escaped falls into pieces when its URL is read.
func secretsOf(words []string) (secrets []string) {
	for _, word := range words {
		_, rest, _ := strings.Cut(word, "://")
		end := strings.LastIndexByte(rest, '@')
		if end < 0 {
			continue
		}
		_, password, found := strings.Cut(rest[:end], ":")
		if !found {
			continue
		}
		whole := []string{password}
		if plain, err := url.PathUnescape(password); err == nil {
			whole = append(whole, plain)
		}
		for _, secret := range whole {
			parts := strings.FieldsFunc(secret, func(r rune) bool { return strings.ContainsRune("/?#@&=", r) })
			secrets = append(append(secrets, secret), parts...)
		}
	}
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < shortSecret })
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(secrets)
}

// userinfo is a password before the host: of a URL, or of an address in a parameter.
var userinfo = regexp.MustCompile(`(://[^\s:@/]*:|[\w.%+-]*:)([^\s:/@]\S*|/[^\s/]\S*)@`)

// redisValue is the value of a wrong part of a URL, which Redis's client repeats.
var redisValue = regexp.MustCompile(`(redis: invalid [^"]*)"[^"]*"`)

// masked is a text without passwords: those that are known, and whatever looks like one.
func masked(text string, secrets []string) string {
	text = userinfo.ReplaceAllStringFunc(text, func(found string) string {
		parts := userinfo.FindStringSubmatch(found)
		if strings.EqualFold(parts[2], "password") { // the form of a URL
			return found
		}
		return parts[1] + mask + "@"
	})
	text = redisValue.ReplaceAllString(text, `${1}"`+mask+`"`)
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, mask)
	}
	return text
}
