// Package format is how a record is written down: to bytes and back, and the
// sum that ties it to the records before it. This comment is its specification.
//
// # Entries
//
// A record becomes an [Entry]: its pid, number, time, kind, call, row and tool
// as they are, so that a store can keep them in columns, and everything else in
// a body. Row and tool are those of the record's intent.
//
// # Bodies
//
// A body is a sequence of fields, in ascending order of their numbers. A field
// begins with a uvarint, the number times 8 plus the type, and goes on as its
// type says:
//
//	0 uint   a uvarint
//	1 int    a uvarint in zigzag; only for what is below zero
//	2 bytes  a uvarint length, and that many bytes
//	3 group  fields of its own, numbered from 1 again, and a zero byte
//	4 blob   the 32 bytes of a hash, and as a uvarint the size of what it names
//	5 key    16 bytes
//	6 mask   a uvarint, and for each of its set bits, the lowest first, a uvarint in zigzag
//
// uvarint and zigzag are those of encoding/binary. A zero field is left out;
// for an attempt number the default is one, and for an outcome "ok". A text is
// a field of bytes, or a uint: the place of the text in a frozen list of words.
// A payload is bytes when it is inline and its size is theirs, a blob when it is
// a hash and a size, and otherwise a group. A part that is a pointer is a group
// that is there or not. Limits, usage and prices are masks: bit i is unit i.
// A list of texts is a group of them numbered from 1, a list of hashes is their bytes. The parts of a record are its
// fields 1 to 6: spawn, intent, answer, note, change, exit. Their fields stand,
// with their numbers, in parts.go.
//
// # Later versions
//
// Field numbers and words are on disk: they are added at the end, and never
// changed or used again. A reader skips a field that it does not know, because
// the type says where the field ends. It refuses an unknown unit in a mask, an
// unknown word and an unknown type. A change that earlier readers would misread goes
// into a body that begins with a zero byte. No field begins so, and every reader
// refuses it.
//
// # Sums
//
// The sum of a record is the SHA-256 of: the sum of the record before it in its
// process (32 zero bytes for the first); pid, number, time as 8 bytes each,
// kind as 1 byte, call as 8 bytes, all big-endian; row and tool, each after its
// length as a uvarint; the body.
package format
