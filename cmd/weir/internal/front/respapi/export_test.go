package respapi

import "time"

// Renew has connections go on with a new stack after every silence as long.
func (o *Options) Renew(silence time.Duration) { o.silence, o.maxSilence = silence, silence }

// Idle is how many clients would make room for others.
func (s *Server) Idle() int {
	n := 0
	for _, c := range s.clients() {
		if c.seat.Waits() {
			n++
		}
	}
	return n
}

// Open is how many clients there are.
func (s *Server) Open() int { return len(s.clients()) }
