// Package bench measures weir beside its peers and beside the floor of the machine, in one run.
package bench
