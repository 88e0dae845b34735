package adminapi

import (
	_ "embed" // of the document
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

//go:generate go test -count=1 -run ^TestGenerated$ -update .

// document has the paths and schemas of the pages, and that of metrics, as TestGenerated makes them.
//
//go:embed openapi.json
var document []byte

type object = map[string]any

// OpenAPI adds the pages, and that of metrics, to a document that describes others.
func OpenAPI(others []byte) ([]byte, error) {
	var whole, own object
	if err := errors.Join(json.Unmarshal(others, &whole), json.Unmarshal(document, &own)); err != nil {
		return nil, fmt.Errorf("weir: the description of the API: %w", err)
	}
	components, _ := whole["components"].(object)
	for name, in := range map[string]object{"paths": whole, "schemas": components} {
		all, _ := in[name].(object)
		more, _ := own[name].(object)
		if all == nil {
			return nil, fmt.Errorf("weir: the description of the API has no %s", name)
		}
		maps.Copy(all, more)
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("weir: the description of the API: %w", err)
	}
	return append(text, '\n'), nil
}
