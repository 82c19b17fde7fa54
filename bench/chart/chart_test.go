package chart_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/bench/chart"
)

// wellFormed reads the whole of a document.
func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	for dec := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}

func ramp(n int, scale float64) []float64 {
	points := make([]float64, n)
	for i := range points {
		points[i] = float64(i) * scale
	}
	return points
}

// Whatever the size of the values, every point is inside the axes and the scale has
// round numbers.
func TestPointsAreInside(t *testing.T) {
	t.Parallel()
	path := regexp.MustCompile(`[ML]([0-9.]+) ([0-9.]+)`)
	for _, scale := range []float64{0, 1e-9, 0.013, 1, 7, 99, 1e12} {
		c := chart.Chart{Title: "a", Lines: []chart.Line{
			{Name: "a", Color: "#06c", Start: -3, Step: 0.25, Points: ramp(50, scale)},
			{Name: "b", Color: "#c60", Dashed: true, Step: 1, Points: []float64{1, 1}},
		}}
		svg, err := c.SVG()
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, svg)
		points := 0
		for line := range strings.Lines(string(svg)) {
			if !strings.Contains(line, "linejoin") {
				continue
			}
			for _, m := range path.FindAllStringSubmatch(line, -1) {
				x, _ := strconv.ParseFloat(m[1], 64)
				y, _ := strconv.ParseFloat(m[2], 64)
				points++
				if x < 70 || x > 780 || y < 56 || y > 310 {
					t.Errorf("scale %g: a point at %g, %g", scale, x, y)
				}
			}
		}
		if points != 52 {
			t.Errorf("scale %g: %d points, want 52", scale, points)
		}
		if n := strings.Count(string(svg), `text-anchor="end"`); n < 4 || n > 12 {
			t.Errorf("scale %g: %d numbers at the y axis", scale, n)
		}
	}
}

// Words are words, whatever is in them, and the same chart is the same picture.
func TestWords(t *testing.T) {
	t.Parallel()
	c := chart.Chart{
		Title: `<script>"&`, About: "a < b", X: "time, s", Y: "requests",
		Lines: []chart.Line{{Name: "ours & theirs", Color: `"/><x`, Step: 1, Points: []float64{0, 2, 1}}},
		Bands: []chart.Band{{Name: "down", From: 0.5, To: 99}},
	}
	svg, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, svg)
	if again, _ := c.SVG(); string(again) != string(svg) {
		t.Error("another picture")
	}
	if strings.Contains(string(svg), "<script>") || strings.Contains(string(svg), "<x") {
		t.Errorf("words became elements:\n%s", svg)
	}
	for _, want := range []string{"ours &amp; theirs", "time, s", "requests", "down", "a &lt; b"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("%q is missing", want)
		}
	}
}

// What has no place is refused.
func TestNothingToDraw(t *testing.T) {
	t.Parallel()
	line := func(step float64, points ...float64) []chart.Line { return []chart.Line{{Step: step, Points: points}} }
	for name, lines := range map[string][]chart.Line{
		"no lines": nil, "no points": line(1), "one point": line(1, 1), "no step": line(0, 1, 2), "endless step": line(math.Inf(1), 1, 2),
		"backwards": line(-1, 1, 2), "no number": line(1, 1, math.NaN()), "endless": line(1, 1, math.Inf(1)), "negative": line(1, 1, -1),
	} {
		if svg, err := (chart.Chart{Lines: lines}).SVG(); err == nil {
			t.Errorf("%s: %s", name, svg)
		}
	}
}

func ExampleChart_SVG() {
	svg, err := chart.Chart{
		Title: "Requests", X: "time, s", Y: "requests per second",
		Lines: []chart.Line{{Name: "seen", Color: "#06c", Step: 1, Points: []float64{10, 12, 11}}},
		Bands: []chart.Band{{Name: "down", From: 1, To: 2}},
	}.SVG()
	fmt.Println(strings.Contains(string(svg), "M70.0 98.3L425.0 56.0L780.0 77.2"), err)
	// Output: true <nil>
}
