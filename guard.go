package weir

import (
	"errors"
	"net/netip"
)

// ErrNoEndpoint is returned where an endpoint is asked for that has no name, or an address that is not valid.
var ErrNoEndpoint = errors.New("weir: no endpoint")

var errGuardUnfinished = errors.New("weir: the guard is not finished")

// Guard is one token bucket for each endpoint.
type Guard struct{ o GuardOptions }

// NewGuard answers a guard without any endpoint, or an error that names the option that cannot be used.
func NewGuard(o GuardOptions) (*Guard, error) {
	if _, err := o.check(); err != nil {
		return nil, err
	}
	return &Guard{o}, nil
}

// Check takes one token of the endpoint.
func (g *Guard) Check(endpoint string) (Decision, error) { return Decision{}, errGuardUnfinished }

// CheckAddr is Check for an address.
func (g *Guard) CheckAddr(addr netip.Addr) (Decision, error) { return Decision{}, errGuardUnfinished }

// CheckOperation is CheckAddr with a bucket for each operation of the address.
func (g *Guard) CheckOperation(op uint64, addr netip.Addr) (Decision, error) {
	return Decision{}, errGuardUnfinished
}

// Peek answers what Check would, and changes nothing.
func (g *Guard) Peek(endpoint string) (Decision, error) { return Decision{}, errGuardUnfinished }

// PeekOperation answers what CheckOperation would, and changes nothing.
func (g *Guard) PeekOperation(op uint64, addr netip.Addr) (Decision, error) {
	return Decision{}, errGuardUnfinished
}

// Unblock lifts the lockout of an endpoint and answers whether there was one.
func (g *Guard) Unblock(endpoint string) bool { return false }

// UnblockOperation is Unblock for the subject of CheckOperation.
func (g *Guard) UnblockOperation(op uint64, addr netip.Addr) bool { return false }

// Reset forgets an endpoint and answers whether it was tracked.
func (g *Guard) Reset(endpoint string) bool { return false }

// ResetOperation is Reset for the subject of CheckOperation.
func (g *Guard) ResetOperation(op uint64, addr netip.Addr) bool { return false }

// SetMaxTrackedEndpoints changes the option of this name.
func (g *Guard) SetMaxTrackedEndpoints(n int) error { return errGuardUnfinished }

// GuardCleanup is what a cleanup has done.
type GuardCleanup struct{}

// Cleanup forgets endpoints.
func (g *Guard) Cleanup() GuardCleanup { return GuardCleanup{} }

// GuardStats are the counts of a guard.
type GuardStats struct{}

// Stats answers the counts.
func (g *Guard) Stats() GuardStats { return GuardStats{} }

// GuardReport is a report.
type GuardReport struct{}

// Report answers a report.
func (g *Guard) Report() GuardReport { return GuardReport{} }

// String is the report as text.
func (r GuardReport) String() string { return "" }

// Close refuses everybody who comes later, with ReasonClosed.
func (g *Guard) Close() error { return nil }
