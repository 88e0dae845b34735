package browser_test

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// largest is how many bytes a picture has at most.
const largest = 150_000

// picture is one of a view: its name, where it is found, what it shows when it is there, in which width and colours.
type picture struct {
	name, hash, shows string
	width             int64
	scheme            string
}

var pictures = []picture{
	{"overview", "#/overview", "per-client", 1280, "light"},
	{"overview-dark", "#/overview", "per-client", 1280, "dark"},
	{"phone", "#/overview", "per-client", 360, "light"},
	{"refusals", "#/refusals", "203.0.113.9", 1280, "light"},
	{"refusal", "#/refusals?id=", "It can be allowed after", 1280, "light"},
	{"policies", "#/policies", "1000/s", 1280, "light"},
	{"policy", "#/policies?name=tokens", "What the candidate would change", 1280, "dark"},
	{"keys", "#/keys?policy=login", "203.0.113.9", 1280, "light"},
	{"key", "#/keys?policy=login&key=203.0.113.9", "Locked out for", 1280, "light"},
	{"lockouts", "#/lockouts", "203.0.113.9", 1280, "light"},
	{"differences", "#/differences", "Asked of both", 1280, "light"},
	{"explain", "#/explain?method=POST&host=shop.example&path=%2Flogin&client=203.0.113.9&run=1", "Refused by", 1280, "light"},
	{"configuration", "#/configuration", "limits: [login, per-client]", 1280, "dark"},
	{"replicas", "#/replicas", "no limit is shared", 1280, "light"},
	{"audit", "#/audit", "customer 4711", 1280, "light"},
	{"phone-dark", "#/refusals?id=", "It can be allowed after", 360, "dark"},
}

// TestScreenshots takes pictures of all views. With -screenshots they are kept, and the server has something to do for a minute before,
// so that charts have something to show.
func TestScreenshots(t *testing.T) {
	dir, length := *screenshots, time.Second
	if dir == "" {
		dir = t.TempDir()
	} else {
		length = 75 * time.Second
	}
	s := serve(t, shop)
	for _, body := range []string{
		`{"policy":"login","key":"198.51.100.2","limits":{"1h":"100/s, burst 200"},"for":3600,"reason":"customer 4711 moves house"}`,
		`{"policy":"tokens","key":"globex","unlimited":true,"for":86400,"reason":"load test until tomorrow, customer 4711"}`,
	} {
		if status, _, answer := s.post("/v1/admin/override", body); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
	}
	tabs := map[string]*tab{}
	for _, one := range pictures {
		id := fmt.Sprint(one.width, one.scheme)
		if tabs[id] == nil {
			tabs[id] = open(t, s.address, one.width, one.scheme)
			tabs[id].live()
		}
	}
	id := traffic(s, length)
	for _, one := range pictures {
		p := tabs[fmt.Sprint(one.width, one.scheme)]
		hash := one.hash
		if hash[len(hash)-1] == '=' {
			hash += id
		}
		eval[any](p, `location.hash = `+quote(hash)+`, scrollTo(0, 0), document.activeElement.blur(), null`)
		p.untilShows("main", one.shows)
		p.until(`document.getAnimations().length === 0`)
		shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if *screenshots != "" {
			if shot, err = smaller(shot); err != nil {
				t.Fatal(err)
			}
		}
		if len(shot) < 10_000 || len(shot) > 2*largest || *screenshots != "" && len(shot) > largest {
			t.Errorf("the picture of %s has %d bytes: want from 10,000 to %d", one.name, len(shot), largest)
		}
		if err := os.WriteFile(filepath.Join(dir, "ui-"+one.name+".png"), shot, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// smaller is a picture in 256 colours: a page of text looks the same.
func smaller(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	bounds := from.Bounds()
	counts := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[opaque(from, x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	var palette color.Palette
	for i, c := range all { // the frequent ones, and then those that none is like
		if len(palette) < 256 && (i < 180 || unlike(palette[palette.Index(c)], c)) {
			palette = append(palette, c)
		}
	}
	nearest := map[color.RGBA]uint8{}
	for _, c := range all {
		nearest[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			to.SetColorIndex(x, y, nearest[opaque(from, x, y)])
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, to)
	return b.Bytes(), err
}

// unlike reports whether a reader sees the difference of two colours.
func unlike(a, b color.Color) bool {
	r, g, bl, _ := a.RGBA()
	x, y, z, _ := b.RGBA()
	apart := func(m, n uint32) int { return max(int(m>>8)-int(n>>8), int(n>>8)-int(m>>8)) }
	return apart(r, x)+apart(g, y)+apart(bl, z) > 36
}

func opaque(picture image.Image, x, y int) color.RGBA {
	r, g, b, _ := picture.At(x, y).RGBA()
	return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
}

// traffic is that of a shop for a while, with some who try passwords, and returns the ID of a refusal.
func traffic(s *server, length time.Duration) (id string) {
	s.t.Helper()
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	end := time.Now().Add(length)
	for n := 0; n < 20 || time.Now().Before(end); n++ {
		swing := 10 + int(5*math.Sin(float64(n)/90)) + n%3
		for i := range swing {
			s.decide(request("GET", "/", fmt.Sprintf("198.51.100.%d", (n*7+i)%230)))
			if i%3 == 0 {
				s.decide(request("GET", "/search", fmt.Sprintf("198.51.100.%d", 7+(n+i)%11)))
			}
			if i%4 == 0 {
				account := []string{"acme", "globex", "initech", "umbrella"}[(n+i)%4]
				s.decide(request("GET", "/v1/complete", "198.51.100.9", "X-Api-Key", account))
			}
		}
		if n%8 == 0 {
			s.decide(request("POST", "/login", fmt.Sprintf("198.51.100.%d", n%90)))
		}
		for range 1 + n%2 {
			if n < 12 || n%4 == 0 {
				if refusal := s.decide(request("POST", "/login", fmt.Sprintf("203.0.113.%d", []int{9, 27, 114, 9}[n%4]))); refusal != "" && n%4 == 0 {
					id = refusal
				}
			}
		}
		<-ticks.C
	}
	for range 6 { // the one whom the pictures show
		if refusal := s.decide(request("POST", "/login", "203.0.113.9")); refusal != "" {
			id = refusal
		}
	}
	return id
}
