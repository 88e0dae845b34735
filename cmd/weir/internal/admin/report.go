package admin

import "time"

// Report is the state of one policy for people, of which there is a text form too: its counts, and the 20 keys under the most
// pressure, those locked out first.
type Report struct {
	Time   time.Time `json:"time"`
	Policy Policy    `json:"policy"`
	Top    []Key     `json:"top"`
}
