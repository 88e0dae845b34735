// Package live holds the limits of a configuration file for the fronts of the server, and replaces them when the file
// changes: at once for all requests that come later, without losing a count. A file that cannot be used is refused, and the
// limits stay as they are.
package live
