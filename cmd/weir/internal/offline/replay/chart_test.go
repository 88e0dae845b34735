package replay_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/offline/replay"
)

// twoDays is a picture of two configurations over two days.
func twoDays() *replay.Picture {
	rng := rand.New(rand.NewPCG(1, 2))
	const steps = 192
	allowed, refused := make([]int64, steps), make([]int64, steps)
	fewer, more := make([]int64, steps), make([]int64, steps)
	for i := range steps {
		n := 80 + rng.Int64N(120)
		if i/20%3 == 1 {
			refused[i] = rng.Int64N(n / 3)
		}
		allowed[i] = n - refused[i]
		fewer[i] = allowed[i] * 4 / 5
		more[i] = n - fewer[i]
	}
	return &replay.Picture{
		Title: "old.yaml and new.yaml compared", Subtitle: "requests in each 15 minutes of access.log, times in UTC",
		Start: time.Date(2026, 5, 17, 10, 0, 0, 0, time.UTC), Step: 15 * time.Minute,
		Groups: []replay.Group{{Name: "all requests", Panels: []replay.Panel{
			{Caption: "old.yaml: 1,234 refused", Allowed: allowed, Refused: refused},
			{Caption: "new.yaml: 2,345 refused", Allowed: fewer, Refused: more, Before: allowed, BeforeName: "allowed by old.yaml"},
		}}},
	}
}

// text is what is written in a picture.
func text(t *testing.T, picture []byte) string {
	t.Helper()
	var words strings.Builder
	decoder := xml.NewDecoder(bytes.NewReader(picture))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return words.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := token.(xml.CharData); ok {
			words.Write(data)
		}
	}
}

func TestSVG(t *testing.T) {
	words := text(t, twoDays().SVG())
	for _, want := range []string{
		"old.yaml and new.yaml compared", "all requests", "new.yaml: 2,345 refused", "allowed by old.yaml", "17 May 2026", "18 May 2026",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
}

// TestAreasAreToScale: of two steps with four requests each, two of the second are refused.
func TestAreasAreToScale(t *testing.T) {
	p := &replay.Picture{Start: time.Unix(0, 0).UTC(), Step: time.Second, Groups: []replay.Group{{Panels: []replay.Panel{
		{Allowed: []int64{4, 2}, Refused: []int64{0, 2}, Before: []int64{1, 4}},
	}}}}
	drawn := string(p.SVG())
	for class, path := range map[string]string{
		"allowed": "M83 259V166.55H518.5V212.77H954V259H518.5V259H83Z",
		"refused": "M518.5 212.77V166.55H954V212.77H518.5Z",
		"before":  "M83 235.89V235.89H518.5V166.55H954",
	} {
		if !strings.Contains(drawn, `class="`+class+`" d="`+path+`"`) {
			t.Errorf("%s is not drawn as %s:\n%s", class, path, drawn)
		}
	}
}

// TestPictureOfLittle: a single step, and one that has nothing in it, are drawn, and what a name has is no XML.
func TestPictureOfLittle(t *testing.T) {
	for _, counts := range [][]int64{{0}, {1}, {3, 0}} {
		p := &replay.Picture{
			Title: strings.Repeat("a long title ", 50), Start: time.Unix(0, 0).UTC(), Step: time.Second,
			Groups: []replay.Group{{Name: "<g>&", Panels: []replay.Panel{{Allowed: counts, Refused: make([]int64, len(counts))}}}},
		}
		if words := text(t, p.SVG()); !strings.Contains(words, "<g>&") || strings.Contains(words, "NaN") {
			t.Errorf("%v: %s", counts, words)
		}
	}
}
