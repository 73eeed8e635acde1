// Package journal keeps the truth: records that are only ever added, in order,
// durable before anybody acts on them. A [Store] keeps them, and a [Log] stands
// in front of it and commits what many callers put at the same time together.
package journal
