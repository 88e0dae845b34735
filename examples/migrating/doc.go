// Package migrating has, for each of four limiters that are often found, what a program or a server looks like with it and with
// weir. The tests run both side by side, and compare what they allow. docs/migrating.md explains the differences.
package migrating
