package match_test

import (
	"fmt"

	"github.com/weirhq/weir/policy/match"
)

func Example() {
	rules := make([]match.Conditions, 2)
	for i, pattern := range []string{"/users/{id}/login", "/files/{rest...}"} {
		if err := rules[i].Add(match.Path, pattern); err != nil {
			fmt.Println(err)
		}
	}
	index := match.NewIndex(rules)

	view := match.View{Method: "POST", Path: "/users//7/./login"}
	for _, rule := range index.Match(&view, nil) {
		index.Bind(&view, rule)
		fmt.Println("rule", rule, "for user", view.PathValue("id"))
	}
	fmt.Println(index.Why(&view, 1))

	// Output:
	// rule 0 for user 7
	// path is /users/7/login, rule wants /files/{rest...}
}
