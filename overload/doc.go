// Package overload refuses requests when a machine or a service can do no more: the least important first.
//
// A [Shedder] stands in front of a server. It reads the pressure on the processors, or what a [Pressure] of yours measures, and
// decides by the [Priority] of a request:
//
//	s, err := overload.NewShedder(overload.ShedderOptions{})
//	...
//	if !s.Allow(overload.PriorityNormal) {
//		return errOverloaded // 503 of HTTP
//	}
//
// It counts no permits. To find out how many requests a service can bear at a time, use an [Adaptive] behind it.
package overload
