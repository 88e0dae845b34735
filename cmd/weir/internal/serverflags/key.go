package serverflags

import (
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// mostKey is how many bytes a key may have.
const mostKey = 1024

// Key returns a flag value that is a key of at least so many bytes, and 1024 at most.
func Key(key *string, shortest int) *KeyFlag { return &KeyFlag{key, shortest} }

// KeyFlag is a flag value that is a key: as the admin API spells it, or as it is. It is stored as it is spelled.
type KeyFlag struct {
	key      *string // as it is spelled
	shortest int
}

// String is the current value.
func (f *KeyFlag) String() string {
	if f.key == nil {
		return ""
	}
	return *f.key
}

// Set stores s if the key that it stands for is not too long.
func (f *KeyFlag) Set(s string) error {
	key := admin.KeyOf(s)
	if err := flags.Text(&key, f.shortest, mostKey).Set(key); err != nil {
		return err
	}
	if !utf8.ValidString(s) {
		s = admin.SpellKey(s)
	}
	*f.key = s
	return nil
}

// Type is what help shows in place of a value.
func (*KeyFlag) Type() string { return "text" }
