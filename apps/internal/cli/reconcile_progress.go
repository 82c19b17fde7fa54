package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
)

// How often a terminal, and a log, is told how far a run is.
const (
	barEvery  = 100 * time.Millisecond
	lineEvery = 5 * time.Second
)

// bar shows how far a run is: one line that changes on a terminal, else a line
// every few seconds.
type bar struct {
	out      io.Writer
	terminal bool
	size     int64 // of the report; 0: not known
	now      func() time.Time
	begun    time.Time
	shown    time.Time
	width    int // of the line that is there
}

func newBar(out io.Writer, size int64) *bar {
	b := &bar{out: out, size: size, terminal: isTerminal(out), now: time.Now}
	b.begun = b.now()
	b.shown = b.begun
	return b
}

// isTerminal tells whether somebody is looking.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// show is told how far the run is.
func (b *bar) show(p reconcile.Progress) {
	at, every := b.now(), lineEvery
	if b.terminal {
		every = barEvery
	}
	if at.Sub(b.shown) < every {
		return
	}
	b.shown = at
	text := b.text(p, at.Sub(b.begun))
	if !b.terminal {
		fmt.Fprintln(b.out, "onlyonce: "+text)
		return
	}
	fmt.Fprint(b.out, "\r"+text+strings.Repeat(" ", max(b.width-len(text), 0)))
	b.width = len(text)
}

// end takes the changing line away.
func (b *bar) end() {
	if b.width > 0 {
		fmt.Fprint(b.out, "\r"+strings.Repeat(" ", b.width)+"\r")
	}
}

// barWidth is how many characters the bar itself has.
const barWidth = 30

func (b *bar) text(p reconcile.Progress, took time.Duration) string {
	done, of := p.Done, p.Of
	if p.Phase == reconcile.Reading {
		done, of = p.Bytes, b.size
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s", p.Phase)
	if of > 0 {
		share := min(float64(done)/float64(of), 1)
		full := int(share * barWidth)
		fmt.Fprintf(&text, " [%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), share*100)
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
