// Package format converts a record to bytes and back, and computes the sum that ties
// it to the records before it. This comment is the specification of the format.
//
// # Entries
//
// A record becomes an [Entry]. The entry has the record's pid, number, time, kind,
// call, row and tool as they are, so that a store can keep them in columns. The body
// has everything else. Row and tool come from the record's intent.
//
// # Bodies
//
// A body is a sequence of fields, in ascending order of their numbers. A field
// begins with a uvarint: the number times 8 plus the type. The type says what
// follows:
//
//	0 uint   a uvarint
//	1 int    a uvarint in zigzag; only for numbers below zero
//	2 bytes  a uvarint length, and that many bytes
//	3 group  fields of its own, numbered from 1 again, and a zero byte
//	4 blob   the 32 bytes of a hash, and as a uvarint the size of the blob
//	5 key    16 bytes
//	6 mask   a uvarint, and for each of its set bits, the lowest first, a uvarint in zigzag
//
// Package encoding/binary defines uvarint and zigzag.
//
// A field with its default is left out. The default is zero, for an attempt number
// one, and for an outcome "ok". A text is a field of bytes, or a uint: the index of
// the text in a frozen list of words. A payload is bytes if it is inline and has its
// whole size, a blob if it is a hash and a size, and otherwise a group. A part that
// is a pointer is a group, which is absent if the pointer is nil. Limits, usage and
// prices are masks: bit i is unit i. A list of texts is a group of texts numbered
// from 1. A list of hashes is their bytes.
//
// The parts of a record are its fields 1 to 7: spawn, intent, answer, note, change,
// exit, removed. The file parts.go has their fields and numbers.
//
// # Later versions
//
// Field numbers and words are on disk. A later version adds new ones at the end, and
// never changes one or uses it again. A reader skips a field that it does not know,
// because the type says where the field ends. It refuses an unknown unit in a mask,
// an unknown word and an unknown type. A change that earlier readers would misread
// goes into a body that begins with a zero byte. Every reader refuses such a body,
// because no field begins with a zero byte.
//
// # Sums
//
// The sum of a record is the SHA-256 of: the sum of the record before it in its
// process (32 zero bytes for the first); pid, number, time as 8 bytes each,
// kind as 1 byte, call as 8 bytes, all big-endian; row and tool, each after its
// length as a uvarint; the body.
package format
