// Package migrating has, for limiters that are often found, what a program or a server looks like with it and with weir. Tests
// run both side by side, and compare what they allow. docs/migrating.md and docs/migrating-go.md explain the differences.
package migrating
