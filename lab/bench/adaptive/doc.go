// Package adaptive simulates a service whose capacity halves and comes back, behind limits of several kinds, in virtual
// time: so the limits are those of package weir, and the result is the same every time.
//
// Requests arrive at random, whether earlier ones were answered or not, as those of many clients do. Each waits in the
// service for one of its workers, which then takes some time for it. Clients wait for an answer until their deadline. The
// service does not notice that one has gone, and works for it all the same: that is what makes an overload last.
package adaptive
