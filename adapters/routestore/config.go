package routestore

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Config says which homes there are and who lives where.
type Config struct {
	// Homes are all homes that the maps name, at least one with a store. All
	// stores must promise the same.
	Homes []Home
	// Map is the map that counts.
	Map Map
	// Previous is the map before, while the map is being changed; nil: none. Its
	// Version must be lower.
	Previous *Map
	// Until is when Previous ends to count for claims and reads. Zero: when it is taken
	// out. Whatever is left of moved keys at their old homes is forgotten then: a retry
	// by the caller runs it again, even what is in doubt, and the recoverer is not given
	// it. Attempts that are under way there end there. Store.Left says whether anything
	// is left.
	Until time.Time
	// Arbiter names the home that decides about a setting of which all homes say that
	// they have none, such as the first fingerprint secret. Default: the first of Homes
	// that has a store. It should be the same in all processes that share the homes:
	// where it is not, those that start a new service at the same moment may be refused.
	Arbiter string
	// Patience is how long one home may take in what goes over several homes: lists,
	// settings, what is due, and a write of an attempt while the map is being changed;
	// the batch of a sweep may take twelve times as long.
	// Default 5 s.
	Patience time.Duration
	// Now is the clock that Until is judged by; nil means time.Now.
	Now func() time.Time
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Patience == 0 {
		c.Patience = 5 * time.Second
	}
	if i := slices.IndexFunc(c.Homes, func(h Home) bool { return h.Store != nil }); c.Arbiter == "" && i >= 0 {
		c.Arbiter = c.Homes[i].Name
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	c = c.WithDefaults()
	errs := c.validateHomes()
	names := map[string]bool{}
	for _, h := range c.Homes {
		names[h.Name] = h.Store != nil
	}
	errs = append(errs, c.Map.validate("Map", names)...)
	if c.Previous != nil {
		errs = append(errs, c.Previous.validate("Previous", names)...)
		if c.Previous.Version >= c.Map.Version {
			errs = append(errs, configError("Map.Version must be higher than that of Previous, got %d after %d: give the new map the next number, also to go back", c.Map.Version, c.Previous.Version))
		}
		if m, found := c.unseen(names); found {
			errs = append(errs, configError("Previous: keys move to %s from %s, which has no store here: their requests would be sent to and fro between both for as long as Previous counts. Give %s a store, or set Until", m.to, m.from, m.from))
		}
	} else if !c.Until.IsZero() {
		errs = append(errs, configError("Until says when Previous ends to count, and there is none"))
	}
	if local := names[c.Arbiter]; !local && c.Arbiter != "" {
		errs = append(errs, configError("Arbiter must be a home with a store, got %q", c.Arbiter))
	}
	if c.Patience < 0 {
		errs = append(errs, configError("Patience must not be negative, got %v", c.Patience))
	}
	return errors.Join(errs...)
}

// unseen finds a move from a home that this process cannot ask to one that it can, which
// nothing here ends.
func (c Config) unseen(local map[string]bool) (move, bool) {
	for m := range c.Previous.moves(&c.Map) {
		if c.Until.IsZero() && !local[m.from] && local[m.to] {
			return m, true
		}
	}
	return move{}, false
}

func (c Config) validateHomes() (errs []error) {
	var first *Home
	seen := map[string]bool{}
	for i, h := range c.Homes {
		if !validName(h.Name) {
			errs = append(errs, configError("Homes: a name must have 1 to 64 letters, digits, dots, dashes and underscores, got %q", h.Name))
		}
		if seen[h.Name] {
			errs = append(errs, configError("Homes: two have the name %q", h.Name))
		}
		seen[h.Name] = true
		if u, err := url.Parse(h.Address); h.Address != "" && (err != nil || !u.IsAbs() || u.Host == "" || u.User != nil) {
			errs = append(errs, configError("Homes: the address of %s must be an absolute URL, without user and password: callers are told", h.Name))
		}
		switch {
		case h.Store == nil:
		case first == nil:
			first = &c.Homes[i]
		case alike(h) != alike(*first):
			errs = append(errs, configError("Homes: all must promise the same, and %s (%+v) promises other things than %s (%+v): route between stores of one kind",
				h.Name, h.Store.Features(), first.Name, first.Store.Features()))
		}
	}
	if first == nil {
		errs = append(errs, configError("Homes: at least one must have a store"))
	}
	return errs
}

// alike is what must be the same in all homes.
func alike(h Home) onlyonce.Features {
	f := h.Store.Features()
	f.Name = ""
	return f
}

func validName(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

func (m Map) validate(field string, homes map[string]bool) (errs []error) {
	if m.Version <= 0 {
		errs = append(errs, configError("%s.Version must be positive, got %d", field, m.Version))
	}
	if len(m.Homes) == 0 {
		errs = append(errs, configError("%s.Homes must name at least one home: the one of all scopes that Table does not name", field))
	}
	if m.By > ByKey {
		errs = append(errs, configError("%s.By must be ByScope or ByKey, got %d", field, m.By))
	}
	for i, name := range m.Homes {
		if _, known := homes[name]; !known || slices.Contains(m.Homes[:i], name) {
			errs = append(errs, configError("%s.Homes: %q is not one of Homes, or is named twice", field, name))
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(m.Table)) {
		if _, known := homes[m.Table[scope]]; !known {
			errs = append(errs, configError("%s.Table: the home %q of scope %q is not one of Homes", field, m.Table[scope], scope))
		}
	}
	return errs
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure routestore", Hint: fmt.Sprintf(format, args...)}
}
