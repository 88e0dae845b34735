package checkapi

import (
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
)

// cost reads an integer from 0 to maxCost.
func (s *scanner) cost() (int64, error) {
	wrong := &fault{field: costName, value: s.excerpt(), accepted: acceptedCost}
	start := s.at
	var n int64
	for ; s.at < len(s.text) && isDigit(s.text[s.at]); s.at++ {
		n = n*10 + int64(s.text[s.at]-'0')
		if n > maxCost {
			return 0, wrong
		}
	}
	digits := s.text[start:s.at]
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, wrong
	}
	switch s.next() {
	case ',', '}', ' ', '\t', '\r', '\n', 0:
		return n, nil
	}
	return 0, wrong
}

// wait reads for how long a client is ready to wait.
func (s *scanner) wait() (time.Duration, error) {
	return s.seconds(&fault{field: waitName, value: s.excerpt(), accepted: acceptedWait})
}

// expiry reads when a reservation expires.
func (s *scanner) expiry() (time.Duration, error) {
	wrong := &fault{field: expiresName, value: s.excerpt(), accepted: acceptedExpiry}
	d, err := s.seconds(wrong)
	if err == nil && d < holds.LeastExpiry {
		return 0, wrong
	}
	return d, err
}

// seconds reads a number of seconds from 0 to mostWait, to the nanosecond.
func (s *scanner) seconds(wrong *fault) (time.Duration, error) {
	var d time.Duration
	start := s.at
	for ; s.at < len(s.text) && isDigit(s.text[s.at]); s.at++ {
		if d = d*10 + time.Duration(s.text[s.at]-'0')*time.Second; d > mostWait*time.Second {
			return 0, wrong
		}
	}
	digits := s.text[start:s.at]
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, wrong
	}
	if s.take('.') {
		first := s.at
		for unit := time.Second / 10; s.at < len(s.text) && isDigit(s.text[s.at]); s.at++ {
			d += time.Duration(s.text[s.at]-'0') * unit
			unit /= 10
		}
		if s.at == first || d > mostWait*time.Second {
			return 0, wrong
		}
	}
	switch s.next() {
	case ',', '}', ' ', '\t', '\r', '\n', 0:
		return d, nil
	}
	return 0, wrong
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
