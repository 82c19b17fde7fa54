package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
)

// bar shows how far a reconciliation is.
type bar struct {
	progress
	size int64 // of the report; 0: not known
}

func newBar(out io.Writer, size int64) *bar { return &bar{newProgress(out), size} }

// show is told how far the run is.
func (b *bar) show(p reconcile.Progress) {
	b.say(func(took time.Duration) string { return b.text(p, took) })
}

func (b *bar) text(p reconcile.Progress, took time.Duration) string {
	done, of := p.Done, p.Of
	if p.Phase == reconcile.Reading {
		done, of = p.Bytes, b.size
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s", p.Phase)
	if of > 0 {
		text.WriteString(" " + barText(float64(done)/float64(of)))
	}
	if p.Phase == reconcile.Reading {
		fmt.Fprintf(&text, " %.1f MB", float64(p.Bytes)/1e6)
		if b.size > 0 {
			fmt.Fprintf(&text, " of %.1f", float64(b.size)/1e6)
		}
		fmt.Fprintf(&text, ", %d rows", p.Rows)
		if took > 0 {
			fmt.Fprintf(&text, ", %.0f a second", float64(p.Rows)/took.Seconds())
		}
	}
	return text.String()
}
