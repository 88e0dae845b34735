package chart

import (
	"image/color"
	"slices"
	"time"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Blue and vermilion, which also the colour-blind can tell apart.
var (
	paper    = color.White
	ink      = color.RGBA{0x22, 0x22, 0x22, 0xff}
	grey     = color.RGBA{0x5a, 0x5a, 0x5a, 0xff}
	grid     = color.RGBA{0xe2, 0xe2, 0xe2, 0xff}
	admitted = color.RGBA{0x8d, 0xb9, 0xda, 0xff}
	refused  = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	before   = color.RGBA{0x10, 0x2a, 0x43, 0xff}
)

func style(size vg.Length, c color.Color, bold bool) text.Style {
	f := font.From(plot.DefaultFont, size)
	f.Variant = "Sans"
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Color: c, Font: f, Handler: plot.DefaultTextHandler}
}

// write writes a line of text that begins at x and stands on y. What has no room up to the right edge is cut off.
func write(c draw.Canvas, s text.Style, x, y vg.Length, line string) (end vg.Length) {
	room := c.Max.X - edge - x
	if s.Width(line) > room {
		runes := []rune(line)
		for len(runes) > 0 && s.Width(string(runes)+"…") > room {
			runes = runes[:len(runes)-1]
		}
		line = string(runes) + "…"
	}
	c.FillText(s, vg.Point{X: x, Y: y}, line)
	return x + s.Width(line)
}

func (p *Picture) draw(c draw.Canvas) error {
	c.SetColor(paper)
	c.Fill(c.Path())
	left := c.Min.X + edge
	y := c.Max.Y - 1.05*vg.Centimeter
	write(c, style(16, ink, true), left, y, p.Title)
	y -= 0.65 * vg.Centimeter
	write(c, style(10, grey, false), left, y, p.Subtitle)
	y -= 0.75 * vg.Centimeter
	p.legend(c, left, y)

	y = c.Max.Y - heading
	for _, g := range p.Groups {
		write(c, style(12, ink, true), left, y-0.6*vg.Centimeter, g.Name)
		y -= groupName
		top := g.most()
		for i, panel := range g.Panels {
			write(c, style(9.5, grey, false), left, y-0.4*vg.Centimeter, panel.Caption)
			y -= caption
			last := i == len(g.Panels)-1
			below := y - panelHeight
			if last {
				below -= axisHeight
			} else {
				below -= between
			}
			area := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
				Min: vg.Point{X: c.Min.X + edge, Y: below},
				Max: vg.Point{X: c.Max.X - edge, Y: y},
			}}
			if err := p.panel(area, panel, top, last); err != nil {
				return err
			}
			y = below
		}
	}
	return nil
}

// legend has the colours, and the line of the first panel that has one.
func (p *Picture) legend(c draw.Canvas, x, y vg.Length) {
	label := style(10, ink, false)
	const box = 0.34 * vg.Centimeter
	for _, entry := range []struct {
		name  string
		shade color.Color
	}{{"allowed", admitted}, {"refused", refused}} {
		c.FillPolygon(entry.shade, []vg.Point{{X: x, Y: y}, {X: x + box, Y: y}, {X: x + box, Y: y + box}, {X: x, Y: y + box}})
		x = write(c, label, x+box+0.2*vg.Centimeter, y+0.03*vg.Centimeter, entry.name) + 0.8*vg.Centimeter
	}
	for _, g := range p.Groups {
		for _, panel := range g.Panels {
			if panel.Before != nil {
				line := draw.LineStyle{Color: before, Width: vg.Points(1)}
				c.StrokeLine2(line, x, y+box/2, x+0.7*vg.Centimeter, y+box/2)
				write(c, label, x+0.9*vg.Centimeter, y+0.03*vg.Centimeter, panel.BeforeName)
				return
			}
		}
	}
}

// most is the highest step of all panels, at least 1.
func (g Group) most() int64 {
	most := int64(1)
	for _, panel := range g.Panels {
		for i := range panel.Admitted {
			most = max(most, panel.Admitted[i]+panel.Refused[i])
		}
	}
	return most
}

func (p *Picture) panel(c draw.Canvas, panel Panel, top int64, last bool) error {
	drawn := plot.New()
	drawn.BackgroundColor = color.Transparent
	steps := len(panel.Admitted)
	end := p.Start.Add(time.Duration(steps) * p.Step)
	drawn.X.Min, drawn.X.Max = 0, float64(steps)
	drawn.Y.Min, drawn.Y.Max = 0, float64(top)*1.06
	drawn.X.Tick.Marker = plot.ConstantTicks(timeTicks(p.Start, end, p.Step, last))
	drawn.Y.Tick.Marker = plot.ConstantTicks(countTicks(top))
	for _, axis := range []*plot.Axis{&drawn.X, &drawn.Y} {
		axis.Tick.Label.Font = style(9, grey, false).Font
		axis.Tick.Label.Color = grey
		axis.Color, axis.Tick.Color = grey, grey
		axis.Width, axis.Tick.Width = vg.Points(0.6), vg.Points(0.6)
		axis.Tick.Length = vg.Points(3)
		axis.Padding = 0
	}
	drawn.Y.Width, drawn.Y.Tick.Length = 0, 0
	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Horizontal.Width = grid, vg.Points(0.6)
	lines.Vertical.Color, lines.Vertical.Width = grid, vg.Points(0.6)
	drawn.Add(lines)

	zero, sum := make([]int64, steps), make([]int64, steps)
	for i := range sum {
		sum[i] = panel.Admitted[i] + panel.Refused[i]
	}
	for _, layer := range []struct {
		from, to []int64
		shade    color.Color
	}{{zero, panel.Admitted, admitted}, {panel.Admitted, sum, refused}} {
		if err := addArea(drawn, layer.from, layer.to, layer.shade); err != nil {
			return err
		}
	}
	if panel.Before != nil && !slices.Equal(panel.Before, panel.Admitted) {
		line, err := plotter.NewLine(stairs(panel.Before))
		if err != nil {
			return err
		}
		line.Color, line.Width = before, vg.Points(0.9)
		drawn.Add(line)
	}
	// The labels of the axes take as much room as they need. Make up for the rest, so that all panels line up.
	area := drawn.DataCanvas(c)
	left := yLabels - (area.Min.X - c.Min.X)
	below := between - (area.Min.Y - c.Min.Y)
	if last {
		below = axisHeight - (area.Min.Y - c.Min.Y)
	}
	right := c.Max.X - area.Max.X
	drawn.Draw(draw.Crop(c, left, right-vg.Points(1), below, 0))
	return nil
}

// stairs is the outline of counts, each of which holds for a whole step.
func stairs(counts []int64) plotter.XYs {
	points := make(plotter.XYs, 0, 2*len(counts))
	for i, n := range counts {
		points = append(points, plotter.XY{X: float64(i), Y: float64(n)}, plotter.XY{X: float64(i + 1), Y: float64(n)})
	}
	return points
}

// addArea fills what lies between two outlines, in a piece of its own for each run of steps that have something to fill: a line
// of no height would be drawn otherwise where there is nothing.
func addArea(drawn *plot.Plot, from, to []int64, shade color.Color) error {
	for i := 0; i < len(to); {
		if from[i] == to[i] {
			i++
			continue
		}
		end := i
		for end < len(to) && from[end] != to[end] {
			end++
		}
		outline := make(plotter.XYs, 0, 4*(end-i))
		for at := i; at < end; at++ {
			y := float64(to[at])
			outline = append(outline, plotter.XY{X: float64(at), Y: y}, plotter.XY{X: float64(at + 1), Y: y})
		}
		for at := end - 1; at >= i; at-- {
			y := float64(from[at])
			outline = append(outline, plotter.XY{X: float64(at + 1), Y: y}, plotter.XY{X: float64(at), Y: y})
		}
		area, err := plotter.NewPolygon(outline)
		if err != nil {
			return err
		}
		area.Color, area.Width = shade, 0
		drawn.Add(area)
		i = end
	}
	return nil
}
