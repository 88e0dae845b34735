// Package interop has tests of weir together with the real servers that it works with: nginx, HAProxy and Apache, which must be
// installed, and Caddy, which they build. They run the configurations that docs/front.md shows.
package interop
