// Package envoy has the protocol buffers of Envoy and Kuadrant that weir speaks. Directory proto has only the messages that weir
// uses, under the names, numbers and paths that they have there: a client cannot tell the difference, and reflection shows what
// it expects. The packages beside it are generated from these files by the command below, which needs nothing but Go.
package envoy

//go:generate env GOWORK=off go -C ../../../../lab/tools run ./protogo -module github.com/weirhq/weir/cmd/weir -out ../../cmd/weir ../../cmd/weir/internal/envoy/proto
