// Package operator shows and changes a running server: the types of the admin API with a client, the rows and texts that people
// read, and the commands admin, why, quota and cluster. All durations of the API are in seconds; -1 stands for never.
package operator
