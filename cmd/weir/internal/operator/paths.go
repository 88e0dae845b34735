package operator

// Paths of the admin API. Those of a policy and a key name them in the query, as both may have any characters.
const (
	OverviewPath      = "/v1/admin/overview"      // GET: Overview
	EventsPath        = "/v1/admin/events"        // GET: events: "overview", an Overview, each second, "refusal", "audit"
	PoliciesPath      = "/v1/admin/policies"      // GET: []Policy
	RulesPath         = "/v1/admin/rules"         // GET: []Rule
	KeysPath          = "/v1/admin/keys"          // GET ?policy=P&n=20: []Key, those under the most pressure first
	KeyPath           = "/v1/admin/key"           // GET ?policy=P&key=K: Key
	SearchPath        = "/v1/admin/search"        // GET ?word=W&n=20: Search, with at most so many refusals
	LockoutsPath      = "/v1/admin/lockouts"      // GET ?policy=P&n=100: []Lockout
	OverridesPath     = "/v1/admin/overrides"     // GET: []Override
	RefusalsPath      = "/v1/admin/refusals"      // GET ?policy=P&key=K&n=100: Refusals, the last first
	RefusalPath       = "/v1/admin/refusal"       // GET ?id=ID: Refusal
	ReportPath        = "/v1/admin/report"        // GET ?policy=P: text/plain, or with Accept: application/json Report
	ConfigurationPath = "/v1/admin/configuration" // GET: Configuration
	ReplicasPath      = "/v1/admin/replicas"      // GET: Replicas
	MembersPath       = "/v1/admin/members"       // GET: []Member
	AuditPath         = "/v1/admin/audit"         // GET ?n=100: []AuditEntry, the last first
	ExplainPath       = "/v1/admin/explain"       // POST Described: ExplanationJSON

	UnlockPath   = "/v1/admin/unlock"   // POST Change: Changed
	OverridePath = "/v1/admin/override" // POST Override: Changed
	RestorePath  = "/v1/admin/restore"  // POST Change: Changed
	ResetPath    = "/v1/admin/reset"    // POST Change: Changed
	// MemberRemovePath and MemberAddPath change the nodes of the cluster.
	MemberRemovePath = "/v1/admin/memberremove" // POST MemberChange: Changed
	MemberAddPath    = "/v1/admin/memberadd"    // POST MemberChange: Changed
	ReloadPath       = "/v1/admin/reload"       // POST Change without policy and key: Changed

	MetricsPath = "/metrics" // GET: in the formats of Prometheus
	UIPath      = "/ui/"     // GET: the dashboard
)
