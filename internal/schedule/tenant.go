package schedule

// tenant counts what was computed for one tenant with sequences here.
type tenant struct {
	name      string
	served    int64 // tokens
	sequences int
}

// join counts a sequence of a tenant. One that comes back, or for the first
// time, begins where the one stands that was served least: time away earns
// nothing, and a newcomer has no claim on the past.
func (s *Scheduler) join(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, served: s.leastServed()}
		s.tenants[name] = t
	}
	t.sequences++
	return t
}

// leave ends the count of a sequence.
func (s *Scheduler) leave(q *Seq) {
	if q.tenant.sequences--; q.tenant.sequences == 0 {
		delete(s.tenants, q.tenant.name)
	}
	q.tenant = nil
}

func (s *Scheduler) leastServed() int64 {
	least, first := int64(0), true
	for _, t := range s.tenants {
		if first || t.served < least {
			least, first = t.served, false
		}
	}
	return least
}

// estimate is a mean that follows what it observes.
type estimate struct {
	mean  float64
	count int
}

// Before there is anything to go by, an answer is taken to have so many tokens.
const firstAnswer = 128

func (e *estimate) observe(n int) {
	e.count++
	e.mean += (float64(n) - e.mean) / float64(min(e.count, 64))
}

// value is the mean, or a guess before there is one.
func (e *estimate) value() int {
	if e.count == 0 {
		return firstAnswer
	}
	return int(e.mean) + 1
}
