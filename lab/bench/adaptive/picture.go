package adaptive

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"time"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/weirhq/weir/overload"
)

const (
	width     = 22 * vg.Centimeter
	height    = 26 * vg.Centimeter
	heading   = 1.9 * vg.Centimeter
	leftEdge  = 2.2 * vg.Centimeter // of what is drawn in a panel, so that all have the same
	rightEdge = 0.6 * vg.Centimeter
)

// ink is one colour for each course, which also the colour-blind can tell apart.
var ink = []color.Color{
	color.RGBA{0x8c, 0x8c, 0x8c, 0xff},
	color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	color.RGBA{0x00, 0x72, 0xb2, 0xff},
	color.RGBA{0x00, 0x9e, 0x73, 0xff},
}

var (
	paper = color.White
	shade = color.RGBA{0xf8, 0xea, 0xe0, 0xff}
	grey  = color.RGBA{0x55, 0x55, 0x55, 0xff}
	rule  = color.RGBA{0xd8, 0xd8, 0xd8, 0xff}
)

// panel is one of the diagrams, which stand above one another.
type panel struct {
	title  string
	values func(*Course) []float64 // NaN where there is none
	low    float64
	high   float64
	ticks  []plot.Tick
	log    bool
	mark   float64 // a dashed line at this value, 0: none
}

func each(f func(Point) float64) func(*Course) []float64 {
	return func(c *Course) []float64 {
		values := make([]float64, len(c.Points))
		for i, p := range c.Points {
			values[i] = f(p)
		}
		return values
	}
}

func panels(s Scenario) []panel {
	return []panel{
		{
			title: "answered in time, per second", low: 0, high: 1250, ticks: labelled("%g", 0, 250, 500, 750, 1000),
			values: each(func(p Point) float64 { return p.Goodput }),
		},
		{
			title: fmt.Sprintf("99th percentile of latency (dashed: the deadline, %d ms)", s.Deadline.Milliseconds()),
			low:   50, high: 30000, log: true,
			mark: s.Deadline.Seconds() * 1000,
			ticks: []plot.Tick{
				{Value: 50, Label: "50 ms"},
				{Value: 100, Label: "100 ms"},
				{Value: 250, Label: "250 ms"},
				{Value: 1000, Label: "1 s"},
				{Value: 5000, Label: "5 s"},
				{Value: 20000, Label: "20 s"},
			},
			values: each(func(p Point) float64 {
				if p.P99 == 0 {
					return math.NaN()
				}
				return float64(p.P99) / float64(time.Millisecond)
			}),
		},
		{
			title: "limit: requests that may be with the service at a time", low: 0, high: 240,
			ticks: labelled("%g", 0, 50, 100, 150, 200), values: each(func(p Point) float64 { return p.Limit }),
		},
		{
			title: "critical requests (a fifth of all) answered in time", low: 0, high: 110,
			ticks: labelled("%g %%", 0, 25, 50, 75, 100),
			values: func(c *Course) []float64 {
				shares := c.InTime(overload.PriorityCritical)
				for i := range shares {
					shares[i] *= 100
				}
				return shares
			},
		},
	}
}

func labelled(format string, values ...float64) []plot.Tick {
	ticks := make([]plot.Tick, len(values))
	for i, v := range values {
		ticks[i] = plot.Tick{Value: v, Label: fmt.Sprintf(format, v)}
	}
	return ticks
}

// Draw draws courses of one scenario as an SVG image: goodput, latency, limit and critical requests over time.
func Draw(w io.Writer, courses []*Course) error {
	image := vgsvg.New(width, height)
	canvas := draw.New(image)
	canvas.SetColor(paper)
	canvas.Fill(canvas.Path())

	s := courses[0].Scenario
	title(canvas, s)
	legend(canvas, courses)
	all := panels(s)
	tiles := draw.Tiles{
		Cols: 1, Rows: len(all), PadY: 0.55 * vg.Centimeter, PadTop: heading + 0.9*vg.Centimeter, PadBottom: 0.3 * vg.Centimeter,
		PadLeft: 0.3 * vg.Centimeter, PadRight: rightEdge,
	}
	for row, p := range all {
		drawn, err := p.plot(courses, row == 0, row == len(all)-1)
		if err != nil {
			return err
		}
		tile := tiles.At(canvas, 0, row)
		// The labels of an axis take as much room as they need. Make up for the rest, so that the panels line up.
		area := drawn.DataCanvas(tile)
		drawn.Draw(draw.Crop(tile, leftEdge-(area.Min.X-canvas.Min.X), 0, 0, 0))
	}
	var svg bytes.Buffer
	if _, err := image.WriteTo(&svg); err != nil {
		return err
	}
	// A reader without the font gets one that is as wide.
	_, err := w.Write(bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

func style(size vg.Length, c color.Color, bold bool) text.Style {
	f := font.From(plot.DefaultFont, size)
	f.Variant = "Sans"
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Color: c, Font: f, Handler: plot.DefaultTextHandler}
}

func title(c draw.Canvas, s Scenario) {
	at := vg.Point{X: c.Min.X + 0.6*vg.Centimeter, Y: c.Max.Y - 0.9*vg.Centimeter}
	c.FillText(style(15, color.Black, true), at, "A service loses half of its capacity for "+
		fmt.Sprintf("%.0f seconds", (s.Recovered-s.Halved).Seconds()))
	at.Y -= 0.6 * vg.Centimeter
	c.FillText(style(10, grey, false), at, fmt.Sprintf(
		"simulated: %d workers, then %d, then %d; %.0f requests arrive in a second; each takes a worker %d ms on average",
		s.Workers, s.Degraded, s.Workers, s.Arrivals, s.Service.Milliseconds()))
}

func legend(c draw.Canvas, courses []*Course) {
	at := vg.Point{X: c.Min.X + 0.6*vg.Centimeter, Y: c.Max.Y - heading - 0.25*vg.Centimeter}
	for i, course := range courses {
		line := draw.LineStyle{Color: ink[i], Width: vg.Points(3)}
		c.StrokeLine2(line, at.X, at.Y+3, at.X+0.9*vg.Centimeter, at.Y+3)
		at.X += 1.1 * vg.Centimeter
		label := style(10, color.Black, false)
		c.FillText(label, at, course.Name)
		at.X += label.Width(course.Name) + 0.8*vg.Centimeter
	}
}

func (p panel) plot(courses []*Course, first, last bool) (*plot.Plot, error) {
	s := courses[0].Scenario
	drawn := plot.New()
	drawn.BackgroundColor = color.Transparent
	drawn.Title.Text = p.title
	drawn.Title.TextStyle = style(10.5, color.Black, true)
	drawn.Title.TextStyle.XAlign, drawn.Title.TextStyle.YAlign = text.XCenter, text.YTop
	drawn.Title.Padding = 0.15 * vg.Centimeter
	drawn.X.Min, drawn.X.Max, drawn.Y.Min, drawn.Y.Max = 0, s.End.Seconds(), p.low, p.high
	drawn.X.Tick.Marker = plot.ConstantTicks(labelled("%g", 0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110))
	drawn.Y.Tick.Marker = plot.ConstantTicks(p.ticks)
	for _, axis := range []*plot.Axis{&drawn.X, &drawn.Y} {
		axis.Tick.Label.Font = style(9, grey, false).Font
		axis.Tick.Label.Color = grey
		axis.Color, axis.Tick.Color = grey, grey
		axis.Padding = 0
	}
	if p.log {
		drawn.Y.Scale = plot.LogScale{}
	}
	if last {
		drawn.X.Label.Text = "time in seconds"
		drawn.X.Label.TextStyle = style(10, color.Black, false)
		drawn.X.Label.TextStyle.XAlign, drawn.X.Label.TextStyle.YAlign = text.XCenter, text.YTop
	}

	halved, recovered := s.Halved.Seconds(), s.Recovered.Seconds()
	band, err := plotter.NewPolygon(plotter.XYs{
		{X: halved, Y: p.low}, {X: recovered, Y: p.low}, {X: recovered, Y: p.high}, {X: halved, Y: p.high},
	})
	if err != nil {
		return nil, err
	}
	band.Color, band.Width = shade, 0
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Horizontal.Width = rule, vg.Points(0.5)
	grid.Vertical.Width, grid.Vertical.Color = 0, nil
	drawn.Add(band, grid)
	if first {
		if err := names(drawn, s, p); err != nil {
			return nil, err
		}
	}
	if p.mark > 0 {
		line, err := plotter.NewLine(plotter.XYs{{X: 0, Y: p.mark}, {X: s.End.Seconds(), Y: p.mark}})
		if err != nil {
			return nil, err
		}
		line.LineStyle = draw.LineStyle{Color: grey, Width: vg.Points(1), Dashes: []vg.Length{4, 3}}
		drawn.Add(line)
	}
	for i, c := range courses {
		for _, part := range parts(c, p.values(c)) {
			line, err := plotter.NewLine(part)
			if err != nil {
				return nil, err
			}
			line.LineStyle = draw.LineStyle{Color: ink[i], Width: vg.Points(1.6)}
			if i == 0 { // so that it is seen beneath the others
				line.Width = vg.Points(3.6)
			}
			drawn.Add(line)
		}
	}
	return drawn, nil
}

// names writes what the phases are into the panel.
func names(drawn *plot.Plot, s Scenario, p panel) error {
	var labels plotter.XYLabels
	for _, phase := range s.Phases() {
		labels.XYs = append(labels.XYs, plotter.XY{X: (phase.From + phase.To).Seconds() / 2, Y: p.high * 0.98})
		labels.Labels = append(labels.Labels, phase.Name)
	}
	written, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	for i := range written.TextStyle {
		written.TextStyle[i] = style(9.5, grey, false)
		written.TextStyle[i].XAlign, written.TextStyle[i].YAlign = text.XCenter, text.YTop
	}
	drawn.Add(written)
	return nil
}

// parts are the points of a curve, divided where there is no value.
func parts(c *Course, values []float64) []plotter.XYs {
	var all []plotter.XYs
	var part plotter.XYs
	for i, v := range values {
		if math.IsNaN(v) {
			if len(part) > 0 {
				all, part = append(all, part), nil
			}
			continue
		}
		part = append(part, plotter.XY{X: c.Points[i].End.Seconds(), Y: v})
	}
	if len(part) > 0 {
		all = append(all, part)
	}
	return all
}
