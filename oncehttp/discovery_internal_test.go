package oncehttp

import (
	"testing"
	"time"
)

func TestISODuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                                  "PT0S",
		24 * time.Hour:                     "P1D",
		720 * time.Hour:                    "P30D",
		26 * time.Hour:                     "P1DT2H",
		90 * time.Second:                   "PT1M30S",
		1500 * time.Millisecond:            "PT1.5S",
		24*time.Hour + 10*time.Millisecond: "P1DT0.01S",
		time.Hour + time.Nanosecond:        "PT1H0.000000001S",
	} {
		if got := isoDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
