package durable

import (
	"errors"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// The kinds of errors that a node tells apart.
const (
	errorNone byte = iota
	errorOther
	errorNotReserved
	errorUnavailable
	errorOption
	errorNotOwner
	errorOwnerGone
)

// mostErrorBytes is how much of a text of an error is sent.
const mostErrorBytes = 512

func cut(text string) string { return text[:min(len(text), mostErrorBytes)] }

// appendError appends the kind of an error and its text, or those of an option.
func appendError(b []byte, err error) []byte {
	if err == nil {
		return append(b, errorNone)
	}
	if misuse, ok := errors.AsType[*weir.OptionError](err); ok {
		b = append(b, errorOption)
		return appendString(appendString(appendString(b, cut(misuse.Option)), cut(misuse.Value)), cut(misuse.Accepted))
	}
	kind := errorOther
	switch {
	case errors.Is(err, ErrNotReserved):
		kind = errorNotReserved
	case errors.Is(err, errNotOwner):
		kind = errorNotOwner
	case errors.Is(err, errOwnerGone):
		kind = errorOwnerGone
	case errors.Is(err, store.ErrUnavailable):
		kind = errorUnavailable
	}
	return appendString(append(b, kind), cut(err.Error()))
}

// remoteError is what another node said.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

// err reads what appendError wrote.
func (d *reader) err() error {
	switch kind := d.byte(); kind {
	case errorNone:
		return nil
	case errorOption:
		return &weir.OptionError{Option: d.text(), Value: d.text(), Accepted: d.text()}
	case errorNotReserved:
		d.text()
		return ErrNotReserved
	case errorNotOwner:
		d.text()
		return errNotOwner
	case errorOwnerGone:
		d.text()
		return errOwnerGone
	case errorUnavailable:
		return &remoteError{d.text(), store.ErrUnavailable}
	case errorOther:
		return &remoteError{text: d.text()}
	default:
		d.fail()
		return nil
	}
}
