package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// How often a terminal, and a log, is told how far a command is.
const (
	barEvery  = 100 * time.Millisecond
	lineEvery = 5 * time.Second
)

// progress shows how far a command is: one line that changes on a terminal, else a
// line every few seconds.
type progress struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
	begun    time.Time
	shown    time.Time
	width    int // of the line that is there
}

func newProgress(out io.Writer) progress {
	p := progress{out: out, terminal: isTerminal(out), now: time.Now}
	p.begun = p.now()
	p.shown = p.begun
	return p
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

// say shows a text, if it is time for one; it is made of how long the command runs.
func (p *progress) say(text func(took time.Duration) string) {
	at, every := p.now(), lineEvery
	if p.terminal {
		every = barEvery
	}
	if at.Sub(p.shown) < every {
		return
	}
	p.shown = at
	line := text(at.Sub(p.begun))
	if !p.terminal {
		fmt.Fprintln(p.out, "onlyonce: "+line)
		return
	}
	fmt.Fprint(p.out, "\r"+line+strings.Repeat(" ", max(p.width-len(line), 0)))
	p.width = len(line)
}

// end takes the changing line away.
func (p *progress) end() {
	if p.width > 0 {
		fmt.Fprint(p.out, "\r"+strings.Repeat(" ", p.width)+"\r")
		p.width = 0
	}
}

// barWidth is how many characters a bar has.
const barWidth = 30

// barText is a bar that is so full, 0 to 1.
func barText(share float64) string {
	share = min(max(share, 0), 1)
	full := int(share * barWidth)
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), share*100)
}
