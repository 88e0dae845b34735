//go:build !linux

package main

// memoryDirectory answers "": only Linux says where files are in memory.
func memoryDirectory() string { return "" }
