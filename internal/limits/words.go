package limits

// OrderText is who is served first by a queue, as files and messages name it.
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
