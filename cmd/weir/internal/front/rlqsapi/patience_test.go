package rlqsapi

import "time"

// Patient makes a service wait for proxies for longer than its grace allows, which it does in real time, whatever its clock says: on a
// machine that stands still all of them would be late. It has to be called before the service is used.
func (s *Service) Patient() { s.patience = time.Hour }
