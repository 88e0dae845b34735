package bounds

import "time"

// Deposed looks for owners that granted something they were asked for after an owner of a later term had granted something.
func Deposed(events []Event) (worst Breach) {
	first := make(map[int64]int64) // when each owner was known to have granted something
	for i := range events {
		e := &events[i]
		if at, known := first[e.Epoch]; e.Kind == Granted && e.Epoch > 0 && (!known || e.Received < at) {
			first[e.Epoch] = e.Received
		}
	}
	for i := range events {
		e := &events[i]
		if e.Kind != Granted || e.Epoch == 0 {
			continue
		}
		for epoch, at := range first {
			if epoch > e.Epoch && at < e.Sent {
				worst.Permits += float64(e.N)
				worst.From, worst.To = time.Duration(at), time.Duration(e.Sent)
				worst.Times++
				break
			}
		}
	}
	return worst
}
