// Package models checks the protocols that carry the promises of weir, as small models, over everything that can happen in them:
// see README.md.
package models
