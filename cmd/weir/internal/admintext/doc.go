// Package admintext writes what a server says about itself for people: the forms of package admin.
package admintext
