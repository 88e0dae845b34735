// Package config reads the configuration file of weir: YAML in, a checked [policy.Set] out.
//
// One run finds every mistake of a file, each with its line and column, what is wrong, what is accepted, and a proposal: see
// [yamlread.Mistake]. Expressions are compiled and checked for their types when the file is read; those that only name
// something, such as
// client.ip, never run as expressions. A ${NAME} in the file is replaced from the environment, and nothing in this package ever
// shows the value.
//
//	file, err := config.Load("weir.yaml", config.Options{})
//	if err != nil {
//		return err // all mistakes, one in a line
//	}
//	engine, err := policy.NewEngine(file.Set, policy.EngineOptions{})
package config
