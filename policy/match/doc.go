// Package match finds the rules that match a request: by its method, host, path, route, protocol, header and client.
//
// [Conditions] are what one rule asks of a request. An [Index] has those of all rules, and finds the ones that match without
// asking each of them: thousands of rules cost a request little more than ten.
//
//	var login match.Conditions
//	if err := login.Add(match.Path, "/users/{id}/login"); err != nil { ... }
//	index := match.NewIndex([]match.Conditions{login})
//
//	view := match.View{Method: "POST", Path: "/users/7/login"}
//	found = index.Match(&view, found[:0]) // [0]
//	index.Bind(&view, 0)
//	view.PathValue("id")                  // "7"
//
// Paths are matched by the patterns of [net/http.ServeMux], in their clean form: no spelling of a path gets past a rule. Where
// servers could read a path in several ways, [View.Readings] has the others, for the caller to ask about each of them.
package match
