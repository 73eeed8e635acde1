// Package journal keeps the truth: records that are only ever added, in order,
// durable before anybody acts on them.
package journal
