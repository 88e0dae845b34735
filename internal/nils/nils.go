// Package nils finds nil pointers in interfaces.
package nils

import "reflect"

// Is reports whether v is nil, or a nil pointer in an interface, which is how a forgotten error check arrives.
func Is(v any) bool {
	p := reflect.ValueOf(v)
	return v == nil || p.Kind() == reflect.Pointer && p.IsNil()
}
