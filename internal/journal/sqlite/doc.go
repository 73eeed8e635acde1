// Package sqlite is the embedded store of a journal: one SQLite file. How a record
// becomes bytes is specified in the package format.
//
// # The file
//
// The data directory holds journal.db, while it is open journal.db-wal and
// journal.db-shm, and the file lock, which is locked by the one process that
// has the journal open and holds its number. All are for their owner alone. The
// file can be read at any time with the sqlite3 program; the view log shows
// records with readable times and kinds.
//
// The header's application_id is "Krn" and a byte with the version of the
// tables, which is 1. Its user_version is the epoch: it rises by one at every
// open, and every transaction looks whether it is still its own, so that an
// owner who was overtaken writes nothing.
//
//	records  a record: id is pid<<32 | n, of which pid and n are shown as columns; time, kind,
//	         call, row and tool; body is the record's body and the first 4 bytes of its sum
//	runs     up to 64 records of a process, one after the other, the first of them numbered
//	         1, 65, 129 and so on: id is the first one's; n is the number of the last one yet and
//	         sum its sum; low and high bound the calls that are answered among them. The row with
//	         id 0 is no run: n and sum are those of the last row of the tail that was settled
//	tail     batches on their way to records: entries one after the other, each with its check
//	         behind its body; sum is the SHA-256 of the sum of the row before it, seq and body
//	blobs    a large payload: its size as a uvarint and its DEFLATE without the last four bytes,
//	         which are always 00 00 ff ff; or a zero byte and the payload as it is
//	names    the blobs by the first four bytes of their SHA-256; what is read is checked against
//	         the whole of it
//
// A batch that touches few processes goes straight to records. One that touches
// many goes to the tail as a single row, because in records each process has
// pages of its own and each page that is touched is written whole; the tail is
// settled in bulk soon after, and at close.
//
// # What is noticed
//
// Whoever reads a record has followed the chain from the beginning of its run
// and compared its end with the run's sum, which is complete; the 4 bytes at
// each record only say which one is wrong. So a record is noticed, and named by
// a [journal.Damage], that is changed in any column or in its body, missing, added,
// exchanged with another or moved to another process. So is a missing end: the
// run says how far it went. [journal.Reader.Scan] notices all of it, [journal.Verify] all of it
// in one process and in its blobs. A damaged row of the tail keeps the journal
// from being opened.
//
// Not noticed is what leaves no trace: the end of a process taken away together
// with its runs, or a whole process; the last rows of a tail after a crash; and
// the work of somebody who computes all sums anew. Against the last, note the
// sum of the last run elsewhere.
//
// # What survives
//
// Append returns when its transaction is in the write-ahead log and the log is
// synced. After a crash SQLite takes from the log every transaction that is
// whole and none that is not: a torn end is cut. A kill at any moment loses
// nothing that was acknowledged, and leaves no half of a batch.
//
// A failure to write for want of room is [journal.ErrFull] and can be tried again. A
// failed sync cannot: what is on disk is unknown then, and the store must be
// opened again.
package sqlite
