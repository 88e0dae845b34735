package store

// Loan is a block of permits that [Store.Lend] has taken for a caller to spend by itself. Give back what is not spent by Return;
// if the caller dies, it is lost to the limit until it comes back as any permit does. The zero value is the loan of a refusal;
// returning it does nothing.
type Loan struct {
	// Charge is what was asked for, with N as many permits as were lent, which is 0 for a loan that was refused.
	Charge Charge
	// Taken is when they were taken, by the clock of the store, in Unix nanoseconds.
	Taken int64
}
