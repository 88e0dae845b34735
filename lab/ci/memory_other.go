//go:build !linux

package main

import "context"

// memoryDirectory returns "": only Linux says where files are in memory.
func memoryDirectory(context.Context) (directory string, remove func()) { return "", nil }

// memoryIsLow is never asked.
func memoryIsLow() bool { return true }
