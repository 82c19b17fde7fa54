package cli

import (
	"strings"
	"testing"
	"time"
)

// Durations are written in the units that people plan in.
func TestSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"7d": 7 * day, "1d12h": 36 * time.Hour, "2w": 14 * day, "1w1d1h1m": 8*day + time.Hour + time.Minute,
		"24h": day, "100ms": 100 * time.Millisecond, "0s": 0, "0d": 0, "0": 0, "1.5h": 90 * time.Minute, "-5m": -5 * time.Minute,
	} {
		var s span
		if err := s.UnmarshalText([]byte(text)); err != nil || time.Duration(s) != want {
			t.Errorf("%s is %v, %v; want %v", text, time.Duration(s), err, want)
		}
	}
	for _, text := range []string{
		"", "d", "7", "7 d", "7x", "1d2d", "1d2w", "-1d", "1d-1h", "0.5d", "1e3d", "never", "106752d", "4294967296d", "99999999999w", "9999999h", "106751d24h", "1dd",
	} {
		var s span
		if err := s.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "7d") {
			t.Errorf("%q is %v, %v", text, time.Duration(s), err)
		}
	}
	for d, want := range map[time.Duration]string{
		7 * day: "7d", day: "1d", 36 * time.Hour: "36h", 90 * time.Minute: "1h30m", time.Minute: "1m", time.Second: "1s", 100 * time.Millisecond: "100ms", 0: "0s",
	} {
		if got := span(d).String(); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

// Sizes are decimal unless they say otherwise.
func TestByteSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"500": 500, "500B": 500, "1KB": 1000, "1kB": 1000, "1KiB": 1024, "1.5MB": 1_500_000, "1.5 MB": 1_500_000, "64KiB": 65536,
		"2MiB": 2 << 20, "1GB": 1e9, "1GiB": 1 << 30, "3TB": 3e12, "1TiB": 1 << 40, "0": 0, "0.5KiB": 512, "-1": -1,
	} {
		var b byteSize
		if err := b.UnmarshalText([]byte(text)); err != nil || int64(b) != want {
			t.Errorf("%s is %d, %v; want %d", text, int64(b), err, want)
		}
	}
	for _, text := range []string{"", "KB", "1K", "1 k", "1kb", "1KBB", "1e3", "0x10", "1_000", "0.5", "1.0001KB", "9223372036854775808", "10000000TB", "1/2", "1/3MB", "NaN", "one"} {
		var b byteSize
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, int64(b))
		}
	}
	for n, want := range map[int64]string{
		0: "0 B", 1: "1 B", 999: "999 B", 1000: "1 KB", 1024: "1.02 KB", 1_500_000: "1.5 MB", 14_000_000_000: "14 GB", 999_499: "999 KB", 999_500: "1 MB",
		99_940: "99.9 KB", 99_960: "100 KB", 9_994: "9.99 KB", 9_996: "10 KB", 123_456_789_012_345: "123 TB", 1 << 62: "4.61 EB",
	} {
		if got := byteSize(n).String(); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}

// Numbers may be grouped.
func TestCount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]count{"2000000": 2e6, "2_000_000": 2e6, "2,000,000": 2e6, "0": 0, "-5": -5} {
		var c count
		if err := c.UnmarshalText([]byte(text)); err != nil || c != want {
			t.Errorf("%s is %d, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "2M", "1.5", "many", "9223372036854775808", "0x10"} {
		var c count
		if err := c.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, c)
		}
	}
	for n, want := range map[count]string{0: "0", 999: "999", 1000: "1,000", 14_000_000: "14,000,000", -1234: "-1,234", -123: "-123"} {
		if got := n.String(); got != want {
			t.Errorf("%d is written %s, want %s", int64(n), got, want)
		}
	}
}
