// Package rlqsapi serves Envoy's rate limit quota service: proxies are assigned quotas in advance, which are redistributed by
// what they report, so that no call is needed for each request.
package rlqsapi
