package requestflags

import (
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/misuse"
	"github.com/weirhq/weir/cmd/weir/internal/requestline"
	"github.com/weirhq/weir/policy"
)

// requestFlag is a flag value: a request.
type requestFlag struct{ line string }

func (f *requestFlag) String() string { return f.line }

// Set takes a line that can be read.
func (f *requestFlag) Set(s string) error {
	if err := requestline.Parse(s, &policy.Request{}); err != nil {
		return err
	}
	f.line = s
	return nil
}

// Type is what help shows in place of a value.
func (*requestFlag) Type() string { return "request" }

// clientFlag is a flag value: an address.
type clientFlag struct{ address *string }

func (f clientFlag) String() string {
	if f.address == nil {
		return ""
	}
	return *f.address
}

// Set takes an address.
func (f clientFlag) Set(s string) error {
	_, err := requestline.ParseClient(s)
	*f.address = s
	return err
}

// Type is what help shows in place of a value.
func (clientFlag) Type() string { return "address" }

// word is a flag value: any text.
type word struct{ text *string }

func (f word) String() string {
	if f.text == nil {
		return ""
	}
	return *f.text
}

// Set takes any text.
func (f word) Set(s string) error {
	*f.text = s
	return nil
}

// Type is what help shows in place of a value.
func (word) Type() string { return "text" }

// pairs is a flag value that may be repeated: names with values.
type pairs struct {
	separator, form string
	all             [][2]string
}

func (f *pairs) String() string {
	if f == nil || len(f.all) == 0 {
		return ""
	}
	words := make([]string, len(f.all))
	for i, p := range f.all {
		words[i] = p[0] + f.separator + p[1]
	}
	return strings.Join(words, ", ")
}

// Set adds a pair.
func (f *pairs) Set(s string) error {
	name, value, found := strings.Cut(s, f.separator)
	if name = strings.TrimSpace(name); !found || name == "" {
		return misuse.Errorf("must be '%s'", f.form)
	}
	f.all = append(f.all, [2]string{name, strings.TrimSpace(value)})
	return nil
}

// Type is what help shows in place of a value.
func (f *pairs) Type() string { return "'" + f.form + "'" }
