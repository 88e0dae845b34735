package policy

// Text is a text that is taken from a request, such as the key that a limit is for. It is safe for concurrent use. This
// package has those that need no language; others are expressions that a configuration has compiled.
type Text interface {
	// AppendTo appends the text to b. What a request lacks is "". An error says that the text cannot be told.
	AppendTo(b []byte, r *Request) ([]byte, error)
	// String is the text as a configuration writes it.
	String() string
}

// Condition is a question about a request. It is safe for concurrent use.
type Condition interface {
	// Holds answers it. An error says that it cannot be answered.
	Holds(r *Request) (bool, error)
	// String is the condition as a configuration writes it.
	String() string
}

// Number is a number that is taken from a request, such as its cost. It is safe for concurrent use.
type Number interface {
	// Int answers it. An error says that it cannot be told.
	Int(r *Request) (int64, error)
	// String is the number as a configuration writes it.
	String() string
}
