// Package reap finds every descendant of this process, whatever it did to get
// away, and sees to its end.
//
// A process that has called [Adopt] is a child subreaper: a descendant that
// loses its parent, by whatever trick, becomes its child, so all of them can be
// found and waited for. It kills with [Sweep], again and again until [Wait]
// says that nothing is left. What it starts from a thread that has called
// [Confine] cannot send it a signal where the system lets us forbid it; where
// not, or should it die of something else, a second process above it inherits
// all it had, and kills it: [Keep].
package reap
