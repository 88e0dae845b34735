//go:build !race

package adaptive_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/lab/bench/adaptive"
	"github.com/weirhq/weir/overload"
)

// The places of the guards in what play answers.
const (
	noLimit = iota
	fixed
	adapts
	adaptsAndSheds
)

func play(t *testing.T, s adaptive.Scenario) []*adaptive.Course {
	t.Helper()
	var courses []*adaptive.Course
	for _, guard := range s.Guards() {
		c, err := s.Run(guard)
		if err != nil {
			t.Fatal(err)
		}
		courses = append(courses, c)
	}
	return courses
}

// scenarios lose half of their capacity: half of the workers, or half of the speed of each; with service times that
// vary by little and by much.
func scenarios() map[string]adaptive.Scenario {
	all := map[string]adaptive.Scenario{}
	for _, seed := range []uint64{1, 2, 3} {
		s := adaptive.Standard()
		s.Seed = seed
		all[fmt.Sprintf("half of the workers, seed %d", seed)] = s
		if seed > 1 {
			continue
		}
		s.Workers, s.Degraded, s.Slower = 50, 50, 2
		all[fmt.Sprintf("half of the speed, seed %d", seed)] = s
		s = adaptive.Standard()
		s.Seed, s.Spread = seed, 0.8
		all[fmt.Sprintf("service times that vary much, seed %d", seed)] = s
	}
	return all
}

// TestAdaptiveHalvedCapacity compares what is answered in time. The service can answer 500 requests a second while its
// capacity is halved.
func TestAdaptiveHalvedCapacity(t *testing.T) {
	for name, s := range scenarios() {
		t.Run(name, func(t *testing.T) {
			courses := play(t, s)
			half := make([]adaptive.Summary, len(courses))
			after := make([]adaptive.Summary, len(courses))
			for i, c := range courses {
				half[i] = c.Summary(s.Halved, s.Recovered)
				after[i] = c.Summary(s.Recovered+5*time.Second, s.End)
				t.Logf("%s: half %.0f/s p99 %v, after %.0f/s p99 %v, critical %.2f", c.Name, half[i].Goodput, half[i].P99, after[i].Goodput, after[i].P99, half[i].InTime[overload.PriorityCritical])
			}
			best := max(half[noLimit].Goodput, half[fixed].Goodput)
			if got := half[adapts].Goodput; got < 3*best || got < 350 {
				t.Errorf("%.0f/s were answered in time, want 350 or more, and three times the %.0f/s of the others", got, best)
			}
			settled := courses[adapts].Summary(s.Halved+5*time.Second, s.Recovered)
			if worst := s.Deadline * 3 / 2; settled.P99 > worst {
				t.Errorf("99 %% of the answers took %v with half of the capacity, want at most %v", settled.P99, worst)
			}
			before := courses[adapts].Summary(5*time.Second, s.Halved)
			if after[adapts].P99 > before.P99*5/4 || after[adapts].Goodput < 0.95*after[adapts].Offered {
				t.Errorf("after it has recovered 99 %% took %v, before %v, and %.0f/s of %.0f/s were answered in time",
					after[adapts].P99, before.P99, after[adapts].Goodput, after[adapts].Offered)
			}
			critical := half[adaptsAndSheds].InTime[overload.PriorityCritical]
			if without := half[adapts].InTime[overload.PriorityCritical]; critical < 0.85 || critical < without+0.2 {
				t.Errorf("%.2f of the critical requests were answered in time, without a shedder %.2f", critical, without)
			}
		})
	}
}

func TestSimulationIsRepeatable(t *testing.T) {
	s := adaptive.Standard()
	s.Halved, s.Recovered, s.End = 2*time.Second, 4*time.Second, 6*time.Second
	var first, second strings.Builder
	a, b := play(t, s), play(t, s)
	adaptive.WriteTable(&first, a)
	adaptive.WriteTable(&second, b)
	if first.String() != second.String() {
		t.Errorf("%s\nand then\n%s", first.String(), second.String())
	}
	for i := range a {
		if !reflect.DeepEqual(a[i].Answers, b[i].Answers) {
			t.Errorf("%s: other answers", a[i].Name)
		}
	}
	if lines := strings.Count(first.String(), "\n"); lines != 2+3*(1+len(a)) {
		t.Errorf("%d lines:\n%s", lines, first.String())
	}
}

// TestServiceWithoutOverload compares the simulation with what is known of it: with one worker per request and no limit, no
// request waits.
func TestServiceWithoutOverload(t *testing.T) {
	s := adaptive.Standard()
	s.Workers, s.Degraded, s.Spread = 10_000, 10_000, 0
	s.End = 80 * time.Second
	c := play(t, s)[noLimit]
	if len(c.Answers) < 70_000 {
		t.Fatalf("%d answers", len(c.Answers))
	}
	for _, a := range c.Answers {
		if a.Latency != s.Service || !a.InTime {
			t.Fatalf("%+v", a)
		}
	}
	if got := c.Summary(10*time.Second, 70*time.Second); got.Goodput < 0.97*s.Arrivals || got.Goodput > 1.03*s.Arrivals {
		t.Errorf("%.0f/s of %.0f/s", got.Goodput, s.Arrivals)
	}
}

func TestDrawAnswersAnImage(t *testing.T) {
	s := adaptive.Standard()
	s.Halved, s.Recovered, s.End = 2*time.Second, 4*time.Second, 6*time.Second
	var svg bytes.Buffer
	if err := adaptive.Draw(&svg, play(t, s)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"<svg", "no limit", "fixed limit", "Adaptive + Shedder", "half capacity", "time in seconds"} {
		if !strings.Contains(svg.String(), text) {
			t.Errorf("no %q in the image", text)
		}
	}
	paths := 0
	for d := xml.NewDecoder(&svg); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "path" {
			paths++
		}
	}
	if paths < 15 { // a curve of each course in each panel but that of the limit
		t.Errorf("%d paths", paths)
	}
}
