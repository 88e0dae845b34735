package flagvalue

import "fmt"

// Words is any text of a length in bytes.
type Words struct {
	p        *string
	min, max int
}

// Text returns a flag value that stores into p, whose value is the default, any text of shortest to longest bytes.
func Text(p *string, shortest, longest int) *Words { return &Words{p, shortest, longest} }

// String is the current value.
func (v *Words) String() string {
	if v.p == nil {
		return ""
	}
	return *v.p
}

// Set stores s.
func (v *Words) Set(s string) error {
	if len(s) < v.min || len(s) > v.max {
		return fmt.Errorf("has %d bytes: must have from %d to %d", len(s), v.min, v.max)
	}
	*v.p = s
	return nil
}

// Type is what help shows in place of a value.
func (*Words) Type() string { return "text" }
