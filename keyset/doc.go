// Package keyset is for programs that do more with the keys of a [weir.Keyed] than ask it for permits. A request can be charged
// to several limits in one step ([TryAcquireAll]). A key can bring its limit, and can be given as bytes ([Plan]). An operator
// can look at keys, and hold one to another limit for a while ([Of]). Most programs need package weir alone.
package keyset
