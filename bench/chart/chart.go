// Package chart draws lines over time as SVG, for the figures of the documentation. The
// same chart makes the same bytes.
package chart

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Chart is lines over a common axis.
type Chart struct {
	// Title stands above the lines. About tells those what is to be seen who do not see
	// it.
	Title, About string
	// X and Y name the axes, with their units.
	X, Y string
	// Lines are drawn in order, later ones above. There must be one that has a point.
	Lines []Line
	// Bands are behind the lines.
	Bands []Band
}

// Line is values at equal distances.
type Line struct {
	// Name is what the legend calls it.
	Name string
	// Color is one of CSS.
	Color string
	// Dashed is for what was not measured: an aim, or what would be.
	Dashed bool
	// Start is the first point's place on the x axis, and Step the distance to the next.
	Start, Step float64
	// Points are the values, none of them negative.
	Points []float64
}

// Band marks a part of the x axis.
type Band struct {
	// Name stands in it, at the top.
	Name string
	// From and To are its ends.
	From, To float64
}

// The picture and the part of it that is inside the axes, in pixels.
const (
	width, height           = 800, 360
	left, top, right, below = 70, 56, 780, 310
)

var errNoPoints = errors.New("a chart needs a line that has points, finite and not negative, at growing places")

// SVG draws the chart. The error says that there is nothing to draw, or that a value has
// no place.
func (c Chart) SVG() ([]byte, error) {
	from, to, most, err := c.bounds()
	if err != nil {
		return nil, err
	}
	step := tick(most)
	p := &picture{from: from, to: to, most: math.Ceil(most/step) * step}
	p.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="system-ui, sans-serif" font-size="12">`, width, height, width, height)
	p.put(`<title>%s</title><desc>%s</desc>`, text(c.Title), text(c.About))
	p.put(`<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	p.put(`<text x="%d" y="20" font-size="15">%s</text>`, left, text(c.Title))
	for _, b := range c.Bands {
		x, end := p.x(max(b.From, from)), p.x(min(b.To, to))
		p.put(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#f2dede"/>`, x, top, max(end-x, 0), below-top)
		p.put(`<text x="%.1f" y="%d" text-anchor="middle" fill="#a33">%s</text>`, (x+end)/2, top+14, text(b.Name))
	}
	p.axes(step)
	p.put(`<text x="%d" y="%d" text-anchor="middle">%s</text>`, (left+right)/2, height-12, text(c.X))
	p.put(`<text transform="translate(18 %d) rotate(-90)" text-anchor="middle">%s</text>`, (top+below)/2, text(c.Y))
	x := left
	for _, l := range c.Lines {
		p.line(l)
		p.put(`<path d="M%d %d h22" stroke="%s" stroke-width="2"%s/><text x="%d" y="%d">%s</text>`, x, top-18, text(l.Color), l.dashes(), x+28, top-14, text(l.Name))
		x += 50 + 7*len(l.Name)
	}
	p.put(`</svg>`)
	return []byte(p.String()), nil
}

// bounds are the ends of the x axis, and the largest value.
func (c Chart) bounds() (from, to, most float64, err error) {
	from, to = math.Inf(1), math.Inf(-1)
	for _, l := range c.Lines {
		if len(l.Points) == 0 {
			continue
		}
		from, to = min(from, l.Start), max(to, l.Start+l.Step*float64(len(l.Points)-1))
		for _, v := range l.Points {
			if !(v >= 0) || math.IsInf(v, 0) {
				return 0, 0, 0, errNoPoints
			}
			most = max(most, v)
		}
	}
	if !(from < to) || math.IsInf(to-from, 0) {
		return 0, 0, 0, errNoPoints
	}
	if most == 0 {
		most = 1
	}
	return from, to, most, nil
}

// tick is a round distance of which a value has four to ten.
func tick(most float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{0.1, 0.2, 0.25, 0.5} {
		if most/(unit*part) <= 10 {
			return unit * part
		}
	}
	return unit
}

// picture is what is drawn so far, and the scales.
type picture struct {
	strings.Builder
	from, to, most float64
}

// put adds a line.
func (p *picture) put(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *picture) x(v float64) float64 { return left + (v-p.from)/(p.to-p.from)*(right-left) }
func (p *picture) y(v float64) float64 { return below - v/p.most*(below-top) }

// axes draws the scales with their numbers.
func (p *picture) axes(step float64) {
	for i := 0.0; i*step <= p.most*(1+1e-9); i++ {
		y := p.y(i * step)
		p.put(`<path d="M%d %.1f H%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, y, right, left-6, y+4, number(i*step))
	}
	step = tick(p.to - p.from)
	for i := math.Ceil(p.from / step); i*step <= p.to; i++ {
		x := p.x(i * step)
		p.put(`<path d="M%.1f %d v5" stroke="#555"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x, below, x, below+18, number(i*step))
	}
	p.put(`<path d="M%d %d V%d H%d" fill="none" stroke="#555"/>`, left, top, below, right)
}

// line draws a line.
func (p *picture) line(l Line) {
	var path strings.Builder
	for i, v := range l.Points {
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], p.x(l.Start+l.Step*float64(i)), p.y(v))
	}
	p.put(`<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-linejoin="round"%s/>`, path.String(), text(l.Color), l.dashes())
}

func (l Line) dashes() string {
	if l.Dashed {
		return ` stroke-dasharray="6 4"`
	}
	return ""
}

// number is a number of a scale.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// text is words within XML.
func text(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
