package store

import (
	"strconv"
	"strings"
)

// dividedID begins the IDs of reservations of both kinds. Behind it are when the two expire and how long the ID of the first is,
// each with a colon behind it, and the IDs of the two.
const dividedID = "weir-both:"

// joined is one reservation for two. A part that has let pass what it could not ask has none.
func joined(charges []Charge, durable, shared Hold) Hold {
	switch {
	case durable.ID == "":
		return shared
	case shared.ID == "":
		return durable
	}
	r := Hold{
		ID: dividedID + strconv.FormatInt(durable.Expires, 10) + ":" + strconv.FormatInt(shared.Expires, 10) + ":" +
			strconv.Itoa(len(durable.ID)) + ":" + durable.ID + shared.ID,
		Expires: min(durable.Expires, shared.Expires), Charges: make([]Charge, 0, len(charges)),
	}
	rest := [2][]Charge{durable.Charges, shared.Charges} // which may say more than what was asked for
	for i := range charges {
		of := &rest[1]
		if charges[i].Durable {
			of = &rest[0]
		}
		if all := *of; len(all) > 0 && all[0].Policy == charges[i].Policy && all[0].Key == charges[i].Key {
			r.Charges, *of = append(r.Charges, all[0]), all[1:]
		}
	}
	return r
}

// parted is the inverse of joined, with what each of the charges really cost. It returns false for what joined has not made.
func parted(r Hold, actual []int64) (two [2]Hold, costs [2][]int64, ok bool) {
	rest, _ := strings.CutPrefix(r.ID, dividedID)
	var numbers [3]int64
	for i := range numbers {
		var number string
		var err error
		number, rest, _ = strings.Cut(rest, ":")
		if numbers[i], err = strconv.ParseInt(number, 10, 64); err != nil {
			return two, costs, false
		}
	}
	n := int(min(numbers[2], MostIDBytes+1))
	if n < 1 || n > MostIDBytes || n >= len(rest) || len(rest)-n > MostIDBytes {
		return two, costs, false
	}
	two[0].ID, two[1].ID = rest[:n], rest[n:]
	two[0].Expires, two[1].Expires = numbers[0], numbers[1]
	for i := range r.Charges {
		kind := 1
		if r.Charges[i].Durable {
			kind = 0
		}
		two[kind].Charges = append(two[kind].Charges, r.Charges[i])
		if actual != nil {
			costs[kind] = append(costs[kind], actual[i])
		}
	}
	return two, costs, len(two[0].Charges) > 0 && len(two[1].Charges) > 0
}
