// Package grpclimit limits gRPC.
package grpclimit
