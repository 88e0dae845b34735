package limits

// OrderText is which waiting call a queue serves first, as files and messages name it.
func OrderText(newestFirst bool) string {
	if newestFirst {
		return "newest-first"
	}
	return "oldest-first"
}

// WhenFullText is what happens to a new key in a full table, as files and messages name it.
func WhenFullText(admit bool) string {
	if admit {
		return "admit"
	}
	return "deny"
}
