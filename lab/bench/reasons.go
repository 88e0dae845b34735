package bench

import (
	"fmt"
	"regexp"
	"strings"
)

// reason is why targets are missed, as far as profiles and trials have told. It is printed where one of them is.
type reason struct {
	of  *regexp.Regexp // the names of the targets
	why string
}

// reasons are looked at in their order.
//
//nolint:gochecknoglobals // a table
var reasons = []reason{
	{
		regexp.MustCompile(`^refuse, goroutines: 1, `),
		"A refusal does what the floor does, and counts itself exactly: one locked addition, 4 of the 6 or 7 ns between them.",
	},
	{
		regexp.MustCompile(`^allow, .*, goroutines: 1, `),
		"After the clock was read, weir compares the time with what the word can hold, and the word with the burst: some ten " +
			"instructions that the floor has not. Their 2 or 3 ns are near the tenth that the target leaves.",
	},
	{
		regexp.MustCompile(`^Try(Acquire|Reserve .*), goroutines: 1, `),
		"A lease has ten words, which are written one by one and copied by its caller two at a time: the processor has such a " +
			"copy wait until both are in its cache, here for 5 ns, and for 9 if it is copied again. A call whose lease is not " +
			"copied takes 1.2 to 1.3 times the floor (`go test -bench Call`). Where swaps are slower this does not show.",
	},
	{
		regexp.MustCompile(`^concurrency, try \+ release, `),
		"The lease is copied, as in TryAcquire, and what its copies share, so that only one of them gives the permit back, " +
			"comes from a sync.Pool and goes back to it: 10 ns. A swap takes 2.7 ns here, of which there are three. The peer " +
			"returns yes or no, and can be released too often.",
	},
	{
		regexp.MustCompile(`, CPU a wait <= `),
		"A caller that waits begins a goroutine, parks, hears a timer and is woken: 6 to 7 µs in the runtime, and 2 in weir. " +
			"x/time/rate pays for the same ([0021](../decisions/0021-a-hot-limiter-lends.md)).",
	},
	{
		regexp.MustCompile(`, batches of 64, goroutines: 2, `),
		"Two processors take the slots of the keys that both ask for from each other, and weir has one for the whole of a " +
			"decision, where the floor swaps a word ([0022](../decisions/0022-batches-touch-their-slots.md)).",
	},
	{
		regexp.MustCompile(`, batches of 64, goroutines: 1, `),
		"With a thousand keys, all in cache, a key of a batch takes 39 ns and a search of the floor 9: the lock and the " +
			"search take 8, the arithmetic 7, finding the place 5, the hash 3, and the rest is the decision and its way. " +
			"Where few keys are asked for most, or no state is written, waiting for memory hides less of that.",
	},
	{
		regexp.MustCompile(`keys, zipf, goroutines: \d, .*table\+clock`),
		"Most calls find their key in cache, so that the lock and the exact count of weir are seen, which the floor has not. " +
			"Two processors take the lines of the frequent keys, and of their shards, from each other.",
	},
	{
		regexp.MustCompile(`keys, (refuse|uniform), goroutines: 2, .*table\+clock`),
		"Two processors take the cache line of a shard from each other, for its lock and its exact count. The floor has " +
			"neither.",
	},
	{
		regexp.MustCompile(`^first sight of a key, `),
		"The system has to provide memory: some 28 pages for a thousand keys, on virtual machines up to 16 µs each. A key of " +
			"a table that grows is also moved two or three times. Using replaced parts of the table again took a sixth less " +
			"time, but a server then needed twice the memory; large pages made batches 3 to 8 times as slow.",
	},
	{
		regexp.MustCompile(`^longest call while `),
		"The call that moves 2048 slots writes to some twelve pages that the system has to provide first. `clock alone` shows " +
			"how long the machine stops a goroutine that does nothing. Smaller parts of the table did not make the longest " +
			"call shorter.",
	},
	{
		regexp.MustCompile(`^3 limits, `),
		"No part of it is slow by itself: finding the rules and making the keys takes 37 percent, the charges 22, the step " +
			"with its clock 27, and counts and answers the rest; no function takes more than 5. The takes by hand look for no " +
			"rule and make no key. A refusal also tells what the limits that did not refuse have left.",
	},
	{
		regexp.MustCompile(`^redis, .*callers: 1, weir coherent`),
		"A single caller and redis-server wait for each other to wake up: what a limiter does is a small part of that time, " +
			"for all.",
	},
	{
		regexp.MustCompile(`^redis, .*weir coherent`),
		"redis-server is busy all the time, and makes more decisions of weir than of the floor, the shortest script that is a " +
			"limit. The peer counts in fixed windows, by a shorter one.",
	},
	{
		regexp.MustCompile(`^redis, .*weir leased`),
		"Leased limits decide in memory, as often as two processors can. The pipeline of the peer makes more decisions the " +
			"more callers wait.",
	},
	{
		regexp.MustCompile(`^wire, RESP, pipeline: 16, weir >= \d+ x GCRA script`),
		"A read and a write for 16 commands take most of the time: the floor, which decides nothing, answers no more of them.",
	},
	{
		regexp.MustCompile(`^wire, RESP, all keys resident, pipeline: 64, >= `),
		"A million states are larger than the caches. All of a pipeline are loaded at once, and that still takes longer than " +
			"to decide.",
	},
	{
		regexp.MustCompile(`^wire, \w+ keys, <= \d+ bytes a key`),
		"The table has 47 bytes for each, and the heap 66 with what was not collected yet. The others are free parts of the " +
			"heap that the runtime has not given back: how many there are depends on when it collected last.",
	},
	{
		regexp.MustCompile(`^wire, idle connections, `),
		"A connection has a goroutine, with 2 KB of stack at least, and 1.8 KB of the heap, most of it of package net. The " +
			"rest are stacks that were given back and wait to be used again: a faster machine opens more connections until then.",
	},
	{
		regexp.MustCompile(`^wire, RLS, open loop, `),
		"The machine stops both processors now and then: two that only read the clock lost 1.7 percent of the time in gaps, " +
			"61 of them over 1 ms in 20 s. The floor, a loop that decides nothing, has a p99.9 of 5.6 ms there, and the " +
			"client is busy for 87 to 100 percent of the time.",
	},
}

// why is the reason of a target that was missed.
func (g Goal) why() string {
	for _, r := range reasons {
		if r.of.MatchString(g.Name) {
			return r.why
		}
	}
	return "The reason is not known yet."
}

// whyMissed is a list with an item for each reason, which names the targets that were missed for it.
func whyMissed(goals []Goal) string {
	var order []string
	missed := map[string][]string{}
	for _, g := range goals {
		if g.Met {
			continue
		}
		why := g.why()
		if missed[why] == nil {
			order = append(order, why)
		}
		missed[why] = append(missed[why], "`"+g.Name+"`")
	}
	var b strings.Builder
	for _, why := range order {
		fmt.Fprintf(&b, "- %s: %s\n", strings.Join(missed[why], "; "), why)
	}
	return b.String()
}
