package replay

import "time"

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
	// Allowed and Refused are counts of requests in each step, equally many and at least one.
	Allowed, Refused []int64
	// Before are the requests that another course has allowed, drawn as a line: nil for none.
	Before []int64
	// BeforeName is what the legend says of that line.
	BeforeName string
}

// max is the highest step of all panels, at least 1.
func (g *Group) max() int64 {
	highest := int64(1)
	for _, panel := range g.Panels {
		for i := range panel.Allowed {
			highest = max(highest, panel.Allowed[i]+panel.Refused[i])
		}
	}
	return highest
}
