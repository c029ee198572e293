//go:build unix

package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"os"
	"strconv"
)

// chart is a line chart, written as an SVG file that needs nothing else.
type chart struct {
	title, xLabel, yLabel string
	// logY draws the y axis logarithmically; all values must then be positive.
	logY bool
	// maxY cuts the y axis: lines leave the picture there. 0 for the largest value.
	maxY   float64
	series []series
}

// series is one line of a chart. NaN interrupts it.
type series struct {
	name string
	x, y []float64
}

const (
	chartWidth, chartHeight                      = 720.0, 420.0
	marginLeft, marginRight, marginTop, marginLo = 70.0, 170.0, 40.0, 50.0
)

// colours tell up to eight lines apart, also for most colour-blind readers.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"}

// write draws the chart into a file.
func (c chart) write(path string) error { return os.WriteFile(path, c.draw(), 0o644) }

func (c chart) draw() []byte {
	var out bytes.Buffer
	xs, ys := c.axes()
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" fill="white"/><clipPath id="plot"><rect x="%g" y="%g" width="%g" height="%g"/></clipPath>`+"\n",
		marginLeft, marginTop, chartWidth-marginLeft-marginRight, chartHeight-marginTop-marginLo)
	text(&out, marginLeft, 22, "start", 15, c.title)
	text(&out, (marginLeft+chartWidth-marginRight)/2, chartHeight-12, "middle", 12, c.xLabel)
	fmt.Fprintf(&out, `<g transform="translate(18 %g) rotate(-90)">`, (marginTop+chartHeight-marginLo)/2)
	text(&out, 0, 0, "middle", 12, c.yLabel)
	out.WriteString("</g>\n")
	for _, v := range xs.ticks() {
		text(&out, xs.at(v), chartHeight-marginLo+18, "middle", 11, number(v))
		stroke(&out, xs.at(v), marginTop, xs.at(v), chartHeight-marginLo)
	}
	for _, v := range ys.ticks() {
		text(&out, marginLeft-8, ys.at(v)+4, "end", 11, number(v))
		stroke(&out, marginLeft, ys.at(v), chartWidth-marginRight, ys.at(v))
	}
	for i, s := range c.series {
		s.draw(&out, xs, ys, colours[i%len(colours)])
		y := marginTop + 14 + 20*float64(i)
		fmt.Fprintf(&out, `<path d="M%g %gh24" stroke="%s" stroke-width="2"/>`, chartWidth-marginRight+12, y-4, colours[i%len(colours)])
		text(&out, chartWidth-marginRight+42, y, "start", 12, s.name)
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

func text(out *bytes.Buffer, x, y float64, anchor string, size int, s string) {
	fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>`+"\n", x, y, anchor, size, html.EscapeString(s))
}

func stroke(out *bytes.Buffer, x1, y1, x2, y2 float64) {
	fmt.Fprintf(out, `<path d="M%.1f %.1fL%.1f %.1f" stroke="#dddddd"/>`+"\n", x1, y1, x2, y2)
}

func (s series) draw(out *bytes.Buffer, xs, ys axis, colour string) {
	fmt.Fprintf(out, `<g clip-path="url(#plot)"><path fill="none" stroke-width="2" stroke="%s" d="`, colour)
	step := "M"
	for i := range s.x {
		if math.IsNaN(s.y[i]) {
			step = "M"
			continue
		}
		fmt.Fprintf(out, "%s%.1f %.1f", step, xs.at(s.x[i]), ys.at(s.y[i]))
		step = "L"
	}
	out.WriteString(`"/>` + "\n")
	for i := range s.x {
		if !math.IsNaN(s.y[i]) {
			fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, xs.at(s.x[i]), ys.at(s.y[i]), colour)
		}
	}
	out.WriteString("</g>\n")
}

// axis maps values between low and high to pixels between from and to.
type axis struct {
	low, high, from, to float64
	log                 bool
}

func (c chart) axes() (xs, ys axis) {
	xs = axis{low: math.Inf(1), high: math.Inf(-1), from: marginLeft, to: chartWidth - marginRight}
	ys = axis{low: math.Inf(1), high: math.Inf(-1), from: chartHeight - marginLo, to: marginTop, log: c.logY}
	for _, s := range c.series {
		for i := range s.x {
			if !math.IsNaN(s.y[i]) {
				xs.low, xs.high = min(xs.low, s.x[i]), max(xs.high, s.x[i])
				ys.low, ys.high = min(ys.low, s.y[i]), max(ys.high, s.y[i])
			}
		}
	}
	if c.maxY > 0 {
		ys.high = c.maxY
	}
	return xs.widened(), ys.widened()
}

// widened gives an axis of one value, or of none, some length.
func (a axis) widened() axis {
	if a.low > a.high {
		a.low, a.high = 1, 2
	}
	if a.low == a.high {
		a.high = a.low + max(math.Abs(a.low), 1)
	}
	return a
}

func (a axis) at(v float64) float64 {
	share := (v - a.low) / (a.high - a.low)
	if a.log {
		share = math.Log(v/a.low) / math.Log(a.high/a.low)
	}
	// Far outside is as good as infinity, and keeps the file's numbers short.
	return a.from + min(max(share, -1), 2)*(a.to-a.from)
}

// ticks returns round values on the axis: five or so, or 1, 2 and 5 times the
// powers of ten.
func (a axis) ticks() (values []float64) {
	if a.log {
		for p := math.Floor(math.Log10(a.low)); p <= math.Log10(a.high); p++ {
			for _, m := range []float64{1, 2, 5} {
				if v := m * math.Pow(10, p); v >= a.low && v <= a.high {
					values = append(values, v)
				}
			}
		}
		return values
	}
	step := math.Pow(10, math.Floor(math.Log10((a.high-a.low)/4)))
	for _, m := range []float64{2, 2.5, 2} { // 2, 5, 10 times
		if (a.high-a.low)/step > 6 {
			step *= m
		}
	}
	for i := math.Ceil(a.low/step - 1e-9); i*step <= a.high*(1+1e-9); i++ {
		values = append(values, i*step+0) // and no negative zero
	}
	return values
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
