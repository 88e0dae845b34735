package flagvalue

import (
	"errors"

	"github.com/weirhq/weir/cmd/weir/internal/misuse"
	"github.com/weirhq/weir/config"
)

// StoreURL is where limits are shared, "" if it is not given. It is checked by Store, after the command line was read: what is
// wrong with the value of a flag is told with the value otherwise, and this one may have a password.
type StoreURL string

// String is never the value: help would show it.
func (*StoreURL) String() string { return "" }

// Set keeps the value.
func (u *StoreURL) Set(s string) error {
	*u = StoreURL(s)
	return nil
}

// Type is what help shows in place of a value.
func (*StoreURL) Type() string { return "url" }

// Store returns the store, nil if there is none. The error is misuse of --store.
func (u *StoreURL) Store() (*config.Store, error) {
	if *u == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	s, err := config.ParseStore(string(*u))
	if wrong, ok := errors.AsType[*config.StoreError](err); ok {
		return nil, misuse.Flag("store", wrong.Value, wrong.Message+"; "+wrong.Fix)
	}
	return s, err
}
