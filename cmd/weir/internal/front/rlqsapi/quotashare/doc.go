// Package quotashare divides limits among proxies in advance: each proxy is assigned a token bucket of its own, which it keeps
// to without asking, and reports from time to time what was demanded of it. The division follows these reports.
//
// # The guarantee
//
// For a limit of rate R and burst B that does not change, all proxies together allow at most B + R x t permits in every interval
// of any length t (TestFleetNeverAboveTheLimit, TestHistoriesNeverAboveTheLimit, FuzzLedger). It holds whatever becomes of
// messages and streams, for proxies that crash, come again under another stream, or go on with what they have until it expires,
// under these assumptions:
//
//   - A message arrives within Grace of the moment at which it was sent, or never, and messages of a stream arrive in order.
//     So does a report. A sender that has not written a message in time must end the stream instead.
//   - A proxy that gets the same bucket again before it has expired keeps the tokens that are in it. With any other one, or
//     if the one before had expired, it begins with a full bucket. When an assignment has expired it allows nothing.
//   - A bucket is refilled evenly, not in steps. One that is refilled in steps can be ahead by one fill.
//
// # How it is kept
//
// Tokens are conserved: they are those that are free, and those that may be in the buckets of proxies. Together
// they are never more than B, and never grow faster than R. A new bucket of a proxy is full, so its tokens are
// taken out of what is free; as long as the bucket may be in use, its capacity is kept free for it, and its rate is not
// available to others, nor to the refilling of what is free.
//
// Nothing tells a sender that an assignment has arrived. So the one before counts as well until it has expired, or until a
// report on the same stream proves that what was sent after it has arrived: one that comes 2 x Grace after it was sent left the
// proxy Grace after it was sent, when the message was there. Of several assignments of a share that may be in force, only one
// is: their rates count as the highest of them, while their tokens add up.
//
// All accounts are kept in whole numbers: rates as tokens in a number of seconds that suits the limit, time in
// milliseconds. A Ledger has no lock and no clock, and starts nothing.
package quotashare
