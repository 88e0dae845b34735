package weirprom

import (
	"fmt"

	"github.com/weirhq/weir/overload"
)

// NewShedder returns a collector of the counts of a [overload.Shedder], from its Stats; name is the value of the label shedder.
func NewShedder(name string, stats func() overload.ShedderStats) *Collector {
	return newCollector(stats, shedderFamilies, "shedder", name)
}

var shedderFamilies = []family[overload.ShedderStats]{
	{
		name: "weir_shedder_pressure_ratio", help: "The pressure, from 0 to 1.", kind: gauge,
		each: one(func(s *overload.ShedderStats) float64 { return s.Pressure }),
	},
	{
		name: "weir_shedder_blind", help: "1 if no source of pressure could be read.", kind: gauge,
		each: one(func(s *overload.ShedderStats) int { return truth(s.Blind) }),
	},
	{
		name: "weir_shedder_requests_total", kind: counter, labels: []string{"priority", result},
		help: "Decisions of a shedder: allowed or shed.",
		each: func(s *overload.ShedderStats, emit emitter) {
			for _, p := range s.Priorities {
				emit(float64(p.Allowed), p.Priority.String(), "allowed")
				emit(float64(p.Shed), p.Priority.String(), "shed")
			}
		},
	},
	{
		name: "weir_shedder_shed_ratio", kind: gauge, labels: []string{"priority"},
		help: "The share of requests that is shed now, from 0 to 1.",
		each: func(s *overload.ShedderStats, emit emitter) {
			for _, p := range s.Priorities {
				emit(p.Share, p.Priority.String())
			}
		},
	},
	{
		name: "weir_shedder_source_pressure_ratio", kind: gauge, labels: []string{"source"},
		help: "The last reading of a source of pressure, 0 if it failed.",
		each: ofSources(func(r *overload.PressureReading) float64 { return r.Pressure }),
	},
	{
		name: "weir_shedder_source_failures_total", kind: counter, labels: []string{"source"},
		help: "Failed readings of a source of pressure.",
		each: ofSources(func(r *overload.PressureReading) float64 { return float64(r.Failures) }),
	},
}

// ofSources is for a metric with a value for each source. Sources with one name are told apart by their places.
func ofSources(of func(*overload.PressureReading) float64) func(*overload.ShedderStats, emitter) {
	return func(s *overload.ShedderStats, emit emitter) {
		seen := make(map[string]bool, len(s.Readings))
		for i := range s.Readings {
			name := valid(s.Readings[i].Source)
			for n := i; seen[name]; n++ {
				name = fmt.Sprintf("%s#%d", valid(s.Readings[i].Source), n+1)
			}
			seen[name] = true
			emit(of(&s.Readings[i]), name)
		}
	}
}
