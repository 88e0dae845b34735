package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/chart"
)

// twoDays is a picture of two configurations over two days.
func twoDays() *chart.Picture {
	rng := rand.New(rand.NewPCG(1, 2))
	const steps = 192
	admitted, refused := make([]int64, steps), make([]int64, steps)
	fewer, more := make([]int64, steps), make([]int64, steps)
	for i := range steps {
		n := 80 + rng.Int64N(120)
		if i/20%3 == 1 {
			refused[i] = rng.Int64N(n / 3)
		}
		admitted[i] = n - refused[i]
		fewer[i] = admitted[i] * 4 / 5
		more[i] = n - fewer[i]
	}
	return &chart.Picture{
		Title: "old.yaml and new.yaml compared", Subtitle: "requests in each 15 minutes of access.log, times in UTC",
		Start: time.Date(2026, 5, 17, 10, 0, 0, 0, time.UTC), Step: 15 * time.Minute,
		Groups: []chart.Group{{Name: "all requests", Panels: []chart.Panel{
			{Caption: "old.yaml: 1,234 refused", Admitted: admitted, Refused: refused},
			{Caption: "new.yaml: 2,345 refused", Admitted: fewer, Refused: more, Before: admitted, BeforeName: "admitted by old.yaml"},
		}}},
	}
}

func TestPNG(t *testing.T) {
	var b bytes.Buffer
	if err := chart.Draw(&b, "png", twoDays()); err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if size := picture.Bounds().Size(); size.X < 1000 || size.Y < 400 {
		t.Errorf("%d by %d dots", size.X, size.Y)
	}
	colours := map[[3]uint32]int{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			r, g, b, _ := picture.At(x, y).RGBA()
			colours[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	for what, colour := range map[string][3]uint32{"admitted": {0x8d, 0xb9, 0xda}, "refused": {0xd5, 0x5e, 0x00}, "paper": {0xff, 0xff, 0xff}} {
		if colours[colour] < 5000 {
			t.Errorf("%s: only %d dots", what, colours[colour])
		}
	}
}

func TestSVG(t *testing.T) {
	var b bytes.Buffer
	if err := chart.Draw(&b, "svg", twoDays()); err != nil {
		t.Fatal(err)
	}
	var words strings.Builder
	decoder := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := token.(xml.CharData); ok {
			words.Write(data)
		}
	}
	for _, want := range []string{
		"old.yaml and new.yaml compared", "all requests", "new.yaml: 2,345 refused", "admitted by old.yaml", "17 May 2026", "18 May 2026",
	} {
		if !strings.Contains(words.String(), want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
}

// TestPictureOfLittle: a single step, and one that has nothing in it, are drawn.
func TestPictureOfLittle(t *testing.T) {
	for _, counts := range [][]int64{{0}, {1}, {3, 0}} {
		p := &chart.Picture{
			Title: strings.Repeat("a long title ", 50), Start: time.Unix(0, 0).UTC(), Step: time.Second,
			Groups: []chart.Group{{Name: "g", Panels: []chart.Panel{{Admitted: counts, Refused: make([]int64, len(counts))}}}},
		}
		for _, format := range chart.Formats {
			if err := chart.Draw(io.Discard, format, p); err != nil {
				t.Errorf("%v as %s: %v", counts, format, err)
			}
		}
	}
}

func TestFormat(t *testing.T) {
	for name, want := range map[string]string{"a.svg": "svg", "b/c.PNG": "png", "x.jpg": "", "svg": "", "": ""} {
		if got, ok := chart.Format(name); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %t", name, got, ok)
		}
	}
	if err := chart.Draw(io.Discard, "gif", twoDays()); err == nil {
		t.Error("a format that is not known is drawn")
	}
}
