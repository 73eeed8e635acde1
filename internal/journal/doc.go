// Package journal keeps records that are only ever added, in order, and durable
// before anybody acts on them.
//
// A [Store] keeps the records: package sqlite has the embedded one. A [Log] stands in
// front of a store and commits in one group the records that many callers put at the
// same time. [Log.Feed] reads the records of all processes in commit order. A [Lease]
// is held for trees: it says which of several holders may append to a process.
//
// Package storetest has the conformance suite that every store must pass. Package
// format specifies how a record becomes bytes.
package journal
