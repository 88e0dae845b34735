// Package httpclient is a client for net/http that keeps to limits: to those that servers tell in the headers of their responses,
// and to its own.
//
//	transport, err := httpclient.New(httpclient.Options{})
//	...
//	client := &http.Client{Transport: transport}
//
// A [Transport] sends nothing before a server will accept it, and sends again what was refused. [MeteredAPI] has the options for
// a paid API. A [Metered] takes permits from limits that all processes of a cluster share. Where the cost of a request is known
// only after its response, see [WithSettlement].
//
// A request that was not sent because of a limit fails with a [LimitedError].
package httpclient

import "github.com/weirhq/weir"

func optionError(option, value, accepted string) error {
	return &weir.OptionError{Option: "httpclient." + option, Value: value, Accepted: accepted}
}

// limited is implemented by the limiters of package weir.
type limited interface{ Limit() weir.Limit }
