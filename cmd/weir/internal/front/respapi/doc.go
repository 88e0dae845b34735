// Package respapi answers checks in the protocol of Redis, so that whatever can speak to Redis can ask weir: a client library, a
// proxy, a script with redis-cli.
package respapi
