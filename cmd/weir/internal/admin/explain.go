package admin

// Described is a request to be explained. All but the path may be missing.
type Described struct {
	Protocol   string              `json:"protocol,omitempty"`
	Method     string              `json:"method,omitempty"`
	Host       string              `json:"host,omitempty"`
	Path       string              `json:"path"`
	Query      string              `json:"query,omitempty"`
	Route      string              `json:"route,omitempty"`
	Headers    map[string][]string `json:"headers,omitempty"`
	Client     string              `json:"client,omitempty"`
	Attributes map[string]string   `json:"attributes,omitempty"`
	// Cost is the number of permits where the configuration does not say so. Default: 1.
	Cost int64 `json:"cost,omitempty"`
}
