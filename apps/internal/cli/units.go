package cli

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// span is a duration that may be written in weeks and days: 7d, 1d12h, 90m.
type span time.Duration

// day and week are as long as people plan with, summer time or not.
const (
	day  = 24 * time.Hour
	week = 7 * day
)

// UnmarshalText reads one.
func (s *span) UnmarshalText(text []byte) error {
	rest, total, units := string(text), time.Duration(0), 0
	for _, unit := range []struct {
		letter string
		length time.Duration
	}{{"w", week}, {"d", day}} {
		number, after, found := strings.Cut(rest, unit.letter)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n > uint64((math.MaxInt64-total)/unit.length) {
			return fmt.Errorf("%q is not a duration such as 7d, 1d12h or 90m", text)
		}
		total, rest, units = total+time.Duration(n)*unit.length, after, units+1
	}
	if rest != "" || units == 0 {
		d, err := time.ParseDuration(rest)
		if err != nil || (units > 0 && d < 0) || d > math.MaxInt64-total {
			return fmt.Errorf("%q is not a duration such as 7d, 1d12h or 90m", text)
		}
		total += d
	}
	*s = span(total)
	return nil
}

// String writes whole days as such.
func (s span) String() string {
	d := time.Duration(s)
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	if text, whole := strings.CutSuffix(d.String(), "m0s"); whole {
		if hours, whole := strings.CutSuffix(text, "h0"); whole {
			return hours + "h"
		}
		return text + "m"
	}
	return d.String()
}

// byteSize is a number of bytes: 500, 1KB, 1.5 MB, 64KiB.
type byteSize int64

// byteUnits are the units by their names, each before those that its name ends with.
func byteUnits() []struct {
	name  string
	bytes int64
} {
	return []struct {
		name  string
		bytes int64
	}{
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"TiB", 1 << 40},
		{"KB", 1e3},
		{"kB", 1e3},
		{"MB", 1e6},
		{"GB", 1e9},
		{"TB", 1e12},
		{"B", 1},
		{"", 1},
	}
}

// UnmarshalText reads one.
func (b *byteSize) UnmarshalText(text []byte) error {
	for _, unit := range byteUnits() {
		number, found := strings.CutSuffix(string(text), unit.name)
		if !found {
			continue
		}
		value, ok := new(big.Rat).SetString(strings.TrimSpace(number))
		if !ok || strings.ContainsAny(number, "eE/xX_") {
			break
		}
		value.Mul(value, new(big.Rat).SetInt64(unit.bytes))
		if !value.IsInt() || !value.Num().IsInt64() {
			return fmt.Errorf("%q is not a whole number of bytes, or too many", text)
		}
		*b = byteSize(value.Num().Int64())
		return nil
	}
	return fmt.Errorf("%q is not a size such as 500, 1KB, 64KiB or 1.5MB", text)
}

// String has three digits at the most and a unit of thousands.
func (b byteSize) String() string { return bytesText(float64(b)) }

// bytesText is a number of bytes for people.
func bytesText(n float64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB", "EB"}
	at := 0
	for ; n >= 999.5 && at < len(units)-1; at++ {
		n /= 1000
	}
	digits := 2
	switch {
	case n >= 99.95 || at == 0:
		digits = 0
	case n >= 9.995:
		digits = 1
	}
	text := strconv.FormatFloat(n, 'f', digits, 64)
	if digits > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + " " + units[at]
}

// count is a number of things: 2000000, 2_000_000 or 2,000,000.
type count int64

// UnmarshalText reads one.
func (c *count) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(strings.NewReplacer("_", "", ",", "").Replace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number such as 2000000 or 2_000_000", text)
	}
	*c = count(n)
	return nil
}

// String has a comma between thousands.
func (c count) String() string {
	digits := strconv.FormatInt(int64(c), 10)
	sign := ""
	if c < 0 {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}
