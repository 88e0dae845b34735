package policy

import "github.com/weirhq/weir"

// Text is a text that is taken from a request, such as the key that a limit is for. It is safe for concurrent use. This package
// has those that need no language; others are expressions that a configuration has compiled.
//
// A Text of another package may have a method Parts() (parts []Text, all bool) that returns the texts of this package that it is
// computed from, and whether it is computed from these alone. [Engine.Search] needs it to find keys.
type Text interface {
	// AppendTo appends the text to b. What a request lacks is "". It returns an error if the text cannot be evaluated.
	AppendTo(b []byte, r *Request) ([]byte, error)
	// String is the text as a configuration writes it.
	String() string
}

// Condition is a question about a request. It is safe for concurrent use.
type Condition interface {
	// Holds reports whether the condition is true. It returns an error if that cannot be evaluated.
	Holds(r *Request) (bool, error)
	// String is the condition as a configuration writes it.
	String() string
}

// Number is a number that is taken from a request, such as its cost. It is safe for concurrent use.
type Number interface {
	// Int is the number. It returns an error if that cannot be evaluated. A cost below 0 refuses the request with ReasonInvalid,
	// and one above 10^15 with ReasonNever, whatever the Fail of the policy is.
	Int(r *Request) (int64, error)
	// String is the number as a configuration writes it.
	String() string
}

// LimitSource is a limit that a request brings itself, such as the override of a descriptor. It is safe for concurrent use.
type LimitSource interface {
	// Limit is the limit of a request. It returns false if the request brings none, so that the limit of the policy applies.
	// After an error the Fail of the policy decides. A limit that is not valid, or has another algorithm than that of the policy
	// or other segments, refuses the request with ReasonInvalid. One more than the keys of a limiter can have, which is 65,534,
	// refuses it with ReasonTableFull. Both do so whatever Fail is.
	Limit(r *Request) (l weir.Limit, ok bool, err error)
	// String is the source as a configuration writes it.
	String() string
}
