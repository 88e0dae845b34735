package rlqsapi

import "time"

// Patient makes a service wait for proxies for d, and not for half of its grace: it does so in real time, whatever its clock says, and
// on a machine that stands still all of them would be late. It has to be called before the service is used.
func (s *Service) Patient(d time.Duration) { s.patience = d }
