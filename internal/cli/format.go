package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kern-run/kern/abi"
)

// Age formats how long something took.
func Age(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// Ago formats how long ago something began.
func Ago(d time.Duration) string {
	switch {
	case d < 0:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours())/24)
}

// moneySpent formats money used, and the limit on it if there is one.
func moneySpent(n int64, l abi.Limits) string {
	s := "$" + abi.FormatMoney(n)
	if limit, set := l.Get(abi.Money); set {
		s += " / $" + abi.FormatMoney(limit)
	}
	return s
}

// Plural counts things: 1 call, 2 calls.
func Plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		what += "e"
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

// SortedKeys are the keys of a map in order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// LimitsLine lists limits in one line.
func LimitsLine(l abi.Limits) string {
	var all []string
	l.Each(func(u abi.Unit, n int64) { all = append(all, u.String()+" "+Amount(u, n)) })
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

// Amount formats an amount of a unit.
func Amount(u abi.Unit, n int64) string {
	s := abi.FormatUnit(u, n)
	switch u {
	case abi.Money:
		return "$" + s
	case abi.Wall:
		for _, none := range []string{"0s", "0m"} { // 10m0s is 10m
			if t := strings.TrimSuffix(s, none); t != s && t != "" && t[len(t)-1] > '9' {
				s = t
			}
		}
	}
	return s
}
