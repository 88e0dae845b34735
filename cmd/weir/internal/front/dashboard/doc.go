// Package dashboard is the page of weir serve for operators: static files that are part of the program, and no data. The page
// asks the admin API for that, with the token that the operator gives it.
//
// The files are what browsers get: no step builds them. static/uplot is uPlot 1.6.32 as its package has it, with its licence.
package dashboard
