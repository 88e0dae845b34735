package etcd

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// permanent reports whether asking again will not help.
func permanent(err error) bool {
	for _, e := range []error{
		rpctypes.ErrAuthFailed, rpctypes.ErrUserNotFound, rpctypes.ErrPermissionDenied, rpctypes.ErrAuthNotEnabled,
		rpctypes.ErrUserEmpty,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
