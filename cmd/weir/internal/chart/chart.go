// Package chart draws what became of requests over time as a picture: for each policy a pair of panels one above the other, with
// what was admitted and what was refused as stacked areas.
package chart

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Picture is what is drawn.
type Picture struct {
	// Title is the heading, Subtitle the line below it.
	Title, Subtitle string
	// Start is the time of the first step, and Step how long each is.
	Start time.Time
	Step  time.Duration
	// Groups stand one below the other: at least one.
	Groups []Group
}

// Group is the panels of one policy, which have the same scale.
type Group struct {
	Name   string
	Panels []Panel
}

// Panel is a course of time.
type Panel struct {
	// Caption stands above the panel.
	Caption string
	// Admitted and Refused are counts of requests in each step, equally many.
	Admitted, Refused []int64
	// Before are the requests that another course has admitted, drawn as a line: nil for none.
	Before []int64
	// BeforeName is what the legend says of that line.
	BeforeName string
}

// Formats are the file extensions that [Format] knows.
var Formats = []string{"svg", "png"}

// Format returns the format for a file of that name: "svg" or "png". It is not ok for any other extension.
func Format(name string) (format string, ok bool) {
	extension := strings.ToLower(strings.TrimPrefix(filepath.Ext(name), "."))
	for _, f := range Formats {
		if extension == f {
			return f, true
		}
	}
	return "", false
}

// dots is how many of them an inch of a PNG has: twice what screens used to have, so that it is sharp on new ones.
const dots = 160

// Draw writes the picture to w, in a format of [Formats].
func Draw(w io.Writer, format string, p *Picture) error {
	width, height := p.size()
	var b bytes.Buffer
	switch format {
	case "svg":
		image := vgsvg.New(width, height)
		if err := p.draw(draw.New(image)); err != nil {
			return err
		}
		if _, err := image.WriteTo(&b); err != nil {
			return fmt.Errorf("weir: drawing the chart: %w", err)
		}
		// Who has not the font gets one that is as wide.
		text := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
			[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
		b = *bytes.NewBuffer(text)
	case "png":
		image := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dots))}
		if err := p.draw(draw.New(image)); err != nil {
			return err
		}
		if _, err := image.WriteTo(&b); err != nil {
			return fmt.Errorf("weir: drawing the chart: %w", err)
		}
	default:
		return fmt.Errorf("weir: chart: format %.20q: must be %s", format, strings.Join(Formats, " or "))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Sizes of what is drawn.
const (
	wide        = 26 * vg.Centimeter
	edge        = 0.7 * vg.Centimeter
	heading     = 2.75 * vg.Centimeter // title, subtitle and legend
	groupName   = 0.85 * vg.Centimeter
	caption     = 0.65 * vg.Centimeter
	panelHeight = 2.6 * vg.Centimeter
	between     = 0.35 * vg.Centimeter // below a panel that has another one below it
	axisHeight  = 0.95 * vg.Centimeter // the labels of the times below a group
	yLabels     = 1.5 * vg.Centimeter
	bottom      = 0.35 * vg.Centimeter
)

func (p *Picture) size() (width, height vg.Length) {
	height = heading + bottom
	for _, g := range p.Groups {
		height += groupName + axisHeight + vg.Length(len(g.Panels))*(caption+panelHeight) + vg.Length(len(g.Panels)-1)*between
	}
	return wide, height
}
