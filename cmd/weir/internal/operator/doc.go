// Package operator is what shows a running server to those who operate it, and asks it: the words of the admin API with a client,
// the rows and texts that people read, and the commands admin, why, quota and cluster. All durations of the API are in seconds;
// -1 stands for never.
package operator
