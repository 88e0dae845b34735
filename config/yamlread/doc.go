// Package yamlread reads YAML strictly. One run finds every mistake of a file, each with its line and column, what is wrong, what
// is accepted, and a proposal: see [Mistake]. Files that are hostile, by aliases that lead to one another for instance, cost no
// more than large ones. A ${NAME} is replaced from the environment where the format has that, and its value is never shown.
//
// A format describes its mappings by [Kind], and says in its own [Words] what can be wrong with any YAML.
package yamlread
