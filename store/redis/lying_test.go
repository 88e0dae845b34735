package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestLyingServer: a reply that says more or less than was asked, or what no limit says, allows nothing and lends nothing.
func TestLyingServer(t *testing.T) {
	t.Parallel()
	limit := weir.FixedWindow(weir.PerHour(100))
	w, err := lawOf(limit)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		answer byte
		used   float64
		more   []float64
		lends  bool
		fails  bool
	}{
		"a decision":                   {answer: answerAllowed, used: 1},
		"one that goes on":             {answer: answerAllowed, used: 1, more: []float64{1}, fails: true},
		"one of no kind":               {answer: answerFull + 1, used: 1, fails: true},
		"fewer used than none":         {answer: answerAllowed, used: -5, fails: true},
		"a loan":                       {answer: answerAllowed, used: 10, more: []float64{10}, lends: true},
		"a loan of more than asked":    {answer: answerAllowed, used: 10, more: []float64{11}, lends: true, fails: true},
		"a loan of all that there are": {answer: answerAllowed, used: 10, more: []float64{1<<53 - 1}, lends: true, fails: true},
		"a loan of too few":            {answer: answerAllowed, used: 10, more: []float64{1}, lends: true, fails: true},
		"a loan of less than none":     {answer: answerAllowed, used: 10, more: []float64{-10}, lends: true, fails: true},
		"a loan that goes on":          {answer: answerAllowed, used: 10, more: []float64{10, 10}, lends: true, fails: true},
		"a loan without a number":      {answer: answerAllowed, used: 10, lends: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := []byte{replyDone}
			number := func(v float64) { body = binary.LittleEndian.AppendUint64(body, math.Float64bits(v)) }
			now := float64(time.Now().UnixMicro())
			number(now)
			body = append(body, c.answer)
			words := make([]float64, w.sent)
			words[0], words[1] = now-math.Mod(now, float64(w.window)), c.used
			for _, v := range append(append([]float64{now}, words...), c.more...) {
				number(v)
			}
			address := startFake(t, func(command []string) string {
				switch command[0] {
				case "CLUSTER":
					return "-ERR This instance has cluster support disabled\r\n"
				case "HELLO", "CLIENT", "PING":
					return ""
				}
				return fmt.Sprintf("$%d\r\n%s\r\n", len(body), body)
			})
			s, err := Open(Options{Addresses: []string{address}, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			charge := store.Charge{Policy: "p", Key: "k", Limit: limit, N: 1}
			if c.lends {
				charge.N = 10
				loan, d, lendErr := store.Lend(context.Background(), s, charge, 2)
				if failed := lendErr != nil; failed != c.fails || failed && (d.Allowed || loan.Lent() != 0) {
					t.Errorf("%d were lent, %+v, %v", loan.Lent(), d, lendErr)
				}
				return
			}
			d := make([]weir.Decision, 1)
			err = store.Take(context.Background(), s, []store.Charge{charge}, d)
			if failed := err != nil; failed != c.fails || failed == d[0].Allowed {
				t.Errorf("%+v, %v", d[0], err)
			}
			if err != nil && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrUnreadable) {
				t.Error(err)
			}
		})
	}
}
