package accesslog

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestClockAccepts(t *testing.T) {
	utc := func(year int, month time.Month, day, hour, minute, second, ns int) int64 {
		return time.Date(year, month, day, hour, minute, second, ns, time.UTC).UnixNano()
	}
	base := utc(2015, time.May, 17, 10, 5, 3, 0)
	for text, want := range map[string]int64{
		"17/May/2015:10:05:03 +0000":             base,
		"17/May/2015:12:05:03 +0200":             base,
		"17/May/2015:00:35:03 -0930":             base,
		"18/May/2015:00:05:03 +1400":             base,
		"16/May/2015:20:05:03 -1400":             base,
		"17/May/2015:10:05:03 -0000":             base,
		"17/May/2015:10:05:03.25 +0000":          base + 250e6,
		"17/May/2015:10:05:03.0123456789 +0000":  base + 12345678,
		"29/Feb/2000:00:00:00 +0000":             utc(2000, time.February, 29, 0, 0, 0, 0),
		"29/Feb/2024:23:59:59 +0000":             utc(2024, time.February, 29, 23, 59, 59, 0),
		"31/Dec/2016:23:59:60 +0000":             utc(2017, time.January, 1, 0, 0, 0, 0),
		"01/Jan/2017:05:29:60.5 +0530":           utc(2017, time.January, 1, 0, 0, 0, 5e8),
		"01/Jan/1970:00:00:00 +0000":             0,
		"01/Jan/1970:00:00:00 +0100":             -3600e9,
		"31/Dec/2261:23:59:59 +0000":             utc(2261, time.December, 31, 23, 59, 59, 0),
		"31/Dec/2261:23:59:59.999999999 -1400":   utc(2262, time.January, 1, 13, 59, 59, 999999999),
		"2015-05-17T10:05:03Z":                   base,
		"2015-05-17t10:05:03z":                   base,
		"2015-05-17 10:05:03":                    base,
		"2015/05/17 10:05:03":                    base,
		"2015-05-17T10:05:03+00:00":              base,
		"2015-05-17T12:05:03.000+02:00":          base,
		"2015-05-17T12:05:03.5+0200":             base + 5e8,
		"2015-05-17 10:05:03,123 +0000":          base + 123e6,
		"2015-05-17T10:05:03.123456789123-00:00": base + 123456789,
		"2016-12-31T23:59:60Z":                   utc(2017, time.January, 1, 0, 0, 0, 0),
		"2016-12-31T15:59:60-08:00":              utc(2017, time.January, 1, 0, 0, 0, 0),
		"1431857103":                             base,
		"1431857103.0":                           base,
		"1431857103.123":                         base + 123e6,
		"1431857103.1234567891":                  base + 123456789,
		"1.431857103123e9":                       base + 123e6,
		"14318571031230E-4":                      base + 123e6,
		"0.01431857103123e+11":                   base + 123e6,
		"1431857103123":                          base + 123e6,
		"1431857103123.5":                        base + 123500e3,
		"1431857103123456":                       base + 123456e3,
		"1431857103123456789":                    base + 123456789,
		"1431857103123456789.9":                  base + 123456789,
		"100000000":                              1e17,
		"9214646399.999999999":                   endOfYears - 1,
		"00001431857103":                         base,
	} {
		var c clock
		// The second call meets the caches that the first one filled.
		for range 2 {
			got, refused := c.parse([]byte(text))
			if refused != "" || got != want {
				t.Errorf("%s: got %d (%s), want %d", text, got, refused, want)
			}
		}
	}
}

func TestClockRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                               wantTime,
		"-":                              wantTime,
		"yesterday":                      wantTime,
		"17/May/2015:10:05":              wantTime,
		"17/May/2015 10:05:03 +0000":     wantTime,
		"17/May/2015:10-05:03 +0000":     wantTime,
		"17/May/2015:10:05-03 +0000":     wantTime,
		"17/May-2015:10:05:03 +0000":     wantTime,
		"17/05//2015:10:05:03 +0000":     wantMonth,
		"17/may/2015:10:05:03 +0000":     wantMonth,
		"17/anF/2015:10:05:03 +0000":     wantMonth,
		"17/Mai/2015:10:05:03 +0000":     wantMonth,
		"00/May/2015:10:05:03 +0000":     wantDay,
		"32/May/2015:10:05:03 +0000":     wantDay,
		"31/Apr/2015:10:05:03 +0000":     wantDay,
		"29/Feb/2015:10:05:03 +0000":     wantDay,
		"29/Feb/2100:10:05:03 +0000":     wantDay,
		"30/Feb/2000:10:05:03 +0000":     wantDay,
		"1a/May/2015:10:05:03 +0000":     wantDigits,
		"+1/May/2015:10:05:03 +0000":     wantDigits,
		"17/May/-015:10:05:03 +0000":     wantDigits,
		"17/May/2015:1a:05:03 +0000":     wantDigits,
		"17/May/2015:10: 5:03 +0000":     wantDigits,
		"17/May/2015:10:05:0x +0000":     wantDigits,
		"17/May/1969:10:05:03 +0000":     wantYear,
		"17/May/2262:10:05:03 +0000":     wantYear,
		"17/May/0000:10:05:03 +0000":     wantYear,
		"17/May/2015:24:00:00 +0000":     wantHour,
		"17/May/2015:10:60:03 +0000":     wantMinute,
		"17/May/2015:10:05:61 +0000":     wantSecond,
		"17/May/2015:10:05:60 +0000":     wantLeap,
		"31/Dec/2016:23:59:60 +0100":     wantLeap,
		"17/May/2015:10:05:03. +0000":    wantFraction,
		"17/May/2015:10:05:03":           wantOffset,
		"17/May/2015:10:05:03 ":          wantOffset,
		"17/May/2015:10:05:03+0000":      wantOffset,
		"17/May/2015:10:05:03 +000":      wantOffset,
		"17/May/2015:10:05:03 +00000":    wantOffset,
		"17/May/2015:10:05:03 00000":     wantOffset,
		"17/May/2015:10:05:03 +1401":     wantOffset,
		"17/May/2015:10:05:03 -1500":     wantOffset,
		"17/May/2015:10:05:03 +0060":     wantOffset,
		"17/May/2015:10:05:03 +0a00":     wantOffset,
		"2015-05-17":                     wantTime,
		"2015-05/17T10:05:03Z":           wantTime,
		"2015-05-17_10:05:03Z":           wantTime,
		"2015-13-17T10:05:03Z":           wantMonth,
		"2015-00-17T10:05:03Z":           wantMonth,
		"2015-06-31T10:05:03Z":           wantDay,
		"2015-05-17T10:05:60Z":           wantLeap,
		"2015-05-17T10:05:03.Z":          wantFraction,
		"2015-05-17T10:05:03Z0":          wantOffset,
		"2015-05-17T10:05:03 UTC":        wantOffset,
		"2015-05-17T10:05:03+02":         wantOffset,
		"2015-05-17T10:05:03+14:01":      wantOffset,
		"2015-05-17T10:05:03 ":           wantOffset,
		"0":                              wantEpoch,
		"0.003":                          wantEpoch,
		"99999999.999":                   wantEpoch,
		"9214646400":                     wantEpoch,
		"10000000000":                    wantEpoch,
		"9223372036854775807":            wantEpoch,
		"99999999999999999999":           wantEpoch,
		"1e999999999999999999999999":     wantEpoch,
		"1e-99999999999999999999999":     wantEpoch,
		"1431857103.":                    wantTime,
		"1431857103.1.2":                 wantTime,
		"1431857103e":                    wantTime,
		"1431857103e+":                   wantTime,
		"1431857103 ":                    wantTime,
		"-1431857103":                    wantTime,
		"0x1431857103":                   wantTime,
		strings.Repeat("9", 1<<16):       wantEpoch,
		"1" + strings.Repeat("0", 1<<16): wantEpoch,
	} {
		var c clock
		if _, refused := c.parse([]byte("17/May/2015:10:05:03 +0000")); refused != "" {
			t.Fatal(refused)
		}
		got, refused := c.parse([]byte(text))
		if refused != want {
			t.Errorf("%.60s: got %d, refused %q, want %q", text, got, refused, want)
		}
		// A refused time leaves nothing wrong in the caches.
		if got, refused := c.parse([]byte("17/May/2015:10:05:04 +0000")); refused != "" || got != 1431857104e9 {
			t.Errorf("after %.60s: got %d (%s)", text, got, refused)
		}
	}
}

var (
	ncsaShape  = regexp.MustCompile(`^\d\d/(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)/\d{4}:\d\d:\d\d:\d\d(?:[.,]\d+)? ([+-]\d{4})$`)
	isoShape   = regexp.MustCompile(`^\d{4}([-/])\d\d([-/])\d\d[Tt ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?([Zz]|[+-]\d\d:?\d\d))?$`)
	epochShape = regexp.MustCompile(`^\d+(?:\.\d+)?(?:[eE][+-]?0*\d{1,4})?$`)
	zoneShape  = regexp.MustCompile(`^(?:|Z|[+-](?:0\d|1[0-3]):?[0-5]\d|[+-]14:?00)$`)
	leapSecond = regexp.MustCompile(`:60(?:[.,]|[ +Z-]|$)`)
)

// referenceTime parses a time with time.Parse or, if it is a number, with exact
// fractions.
func referenceTime(text string) (ns int64, ok bool) {
	if epochShape.MatchString(text) {
		return referenceEpoch(text)
	}
	var layout, zone string
	if m := ncsaShape.FindStringSubmatch(text); m != nil {
		layout, zone = "02/Jan/2006:15:04:05 -0700", m[1]
	} else if m := isoShape.FindStringSubmatch(text); len(m) > 2 && m[1] == m[2] {
		text = text[:10] + "T" + text[11:]
		layout, zone = "2006"+m[1]+"01"+m[1]+"02T15:04:05", strings.ToUpper(m[3])
		text = strings.TrimSuffix(text, m[3])
		text = strings.TrimSuffix(text, " ") + zone
		switch {
		case zone == "":
		case strings.Contains(zone, ":"):
			layout += "Z07:00"
		default:
			layout += "Z0700"
		}
	} else {
		return 0, false
	}
	if !zoneShape.MatchString(zone) {
		return 0, false
	}
	leap := leapSecond.MatchString(text)
	if leap { // time.Parse knows none
		i := leapSecond.FindStringIndex(text)[0]
		text = text[:i] + ":59" + text[i+3:]
	}
	parsed, err := time.Parse(layout, text)
	if err != nil || parsed.Year() < minYear || parsed.Year() > maxYear {
		return 0, false
	}
	if leap {
		if u := parsed.UTC(); u.Hour() != 23 || u.Minute() != 59 {
			return 0, false
		}
		parsed = parsed.Add(time.Second)
	}
	return parsed.UnixNano(), true
}

func referenceEpoch(text string) (int64, bool) {
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, false
	}
	power := func(n int64) *big.Rat {
		return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil))
	}
	unit := int64(-1)
	for i, start := range []int64{8, 11, 14, 17, 20} {
		if value.Cmp(power(start)) >= 0 {
			unit = int64(i)
		}
	}
	if unit < 0 || unit > 3 {
		return 0, false
	}
	value.Mul(value, power(9-3*unit))
	ns := new(big.Int).Quo(value.Num(), value.Denom())
	if !ns.IsInt64() || ns.Int64() >= time.Date(2262, time.January, 1, 0, 0, 0, 0, time.UTC).UnixNano() {
		return 0, false
	}
	return ns.Int64(), true
}

func FuzzClock(f *testing.F) {
	for _, seed := range []string{
		"17/May/2015:10:05:03 +0000",
		"31/Apr/2015:10:05:03 +0000",
		"29/Feb/1900:10:05:03 -1400",
		"31/Dec/2016:23:59:60 +0000",
		"01/Jan/2017:05:29:60.5 +0530",
		"17/May/2015:10:05:03.123456789123 +0560",
		"2015-05-17T10:05:03.123456789Z",
		"2015/05/17 10:05:03,5 +1401",
		"2016-12-31T15:59:60-08:00",
		"1431857103.123",
		"1.431857103123e9",
		"143185710312345678901",
		"99999999.999999999",
	} {
		f.Add(seed)
	}
	var warm clock // its caches hold whatever came before
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 100 {
			return
		}
		want, ok := referenceTime(text)
		for name, c := range map[string]*clock{"cold": {}, "warm": &warm} {
			got, refused := c.parse([]byte(text))
			if (refused == "") != ok || ok && got != want {
				t.Errorf("%s %q: got %d (%q), want %d, %v", name, text, got, refused, want, ok)
			}
		}
	})
}
