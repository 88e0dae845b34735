// Package redis keeps states of limits in Redis or Valkey, where many processes share them: a store.Store.
package redis
