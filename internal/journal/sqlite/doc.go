// Package sqlite is the embedded store of a journal: one SQLite file. Package format
// specifies how a record becomes bytes.
//
// # The file
//
// The data directory holds the files journal.db, journal.mark and lock. The one process
// that has the journal open locks the last two, and writes its number into lock. While
// the journal is open there are also journal.db-wal and journal.db-shm. All of them are
// readable for their owner alone. The sqlite3 program can read the journal at any
// time; its view log shows records with readable times and kinds.
//
// The mark says how far the journal was acknowledged, see [markFile]. To copy a journal
// that is open or that a crash left, copy journal.db, journal.db-wal and journal.mark.
//
// The application_id in the header is "Krn" and a byte with the version of the
// tables, which is 1. The user_version is the newest epoch. It rises with every open
// and every claim. Every transaction compares it with the epoch that it expects, so
// an owner that was replaced writes nothing.
//
//	records  a record: id is pid<<32 | n, of which pid and n are shown as columns; time, kind,
//	         call, row and tool; body is the record's body and the first 4 bytes of its sum
//	runs     up to 64 records of a process, one after the other, the first of them numbered
//	         1, 65, 129 and so on: id is the first one's; n is the number of the last one yet and
//	         sum its sum; low and high bound the calls that are answered among them. The row with
//	         id 0 is no run: n and sum are those of the last row of the tail that was settled
//	tail     batches on their way to records: entries one after the other, each with its check
//	         behind its body; sum is the SHA-256 of the sum of the row before it, seq and body
//	feed     the commit order: id is the position of the row's first record, counted from 1; body
//	         is spans, each the pid, the number of its first record and the count, as uvarints.
//	         The row with id 0 is no span: it is the epoch of the last owner that kept the table.
//	         The row with id -1 is 1 while the journal is open, and after a crash
//	blobs    a large payload: its size as a uvarint and its DEFLATE without the last four bytes,
//	         which are always 00 00 ff ff; or a zero byte and the payload as it is
//	names    the blobs by the first four bytes of their SHA-256; a blob that is read is checked
//	         against the whole of it
//
// A batch that touches few processes goes straight to records. A batch that touches
// many goes to the tail as a single row: the records of each process have pages of
// their own, and SQLite writes every touched page whole. The store settles
// the tail in bulk soon after, and when it is closed.
//
// The table feed is missing in journals of older versions. The store makes it when it
// opens such a journal: older records are in the order of their processes. It also
// adds records that an older version wrote in between, which the epoch in row 0 shows.
//
// # What damage is noticed
//
// A reader follows the chain of sums from the beginning of each run, and compares its
// end with the sum of the run, which is complete. The 4 bytes at each record only say
// which record is wrong. So a [journal.Damage] names a record that was changed in any
// column or in its body, is missing, was added, or was moved. It also names a missing
// end, because the run says how far it went. [journal.Reader.Scan] notices all of
// this, and [journal.Verify] notices it in one process and in its blobs. A feed
// compares each record with the 4 bytes of its sum, and its position with its number
// in the process. A damaged row of the tail keeps the journal from being opened.
//
// Open walks the frames of a write-ahead log before SQLite reads it, because SQLite takes
// a bad frame for the end of the log. A bad frame is damage if the mark counts it, or if
// two groups end at or behind it: a crash can tear the last group only. Open also
// compares the number of records, and the total of the last sums of all processes, with
// the mark. So it notices a lost, cut, damaged or older journal.db or journal.db-wal, a
// process that is gone whole, and a journal.db that was copied without the other files.
// The scan that follows names the record, where it can. An empty directory with traces
// of a journal is damage too.
//
// Some damage leaves no trace: a whole data directory that was replaced by an older one,
// and an attacker that computes all sums again. Against both, keep the sum of the last
// run elsewhere. After a power failure the mark may be some groups old. Damage to the
// very last group of the log looks like a torn group then.
//
// # What survives
//
// Append returns when its transaction is in the write-ahead log and the log is
// synced; then it writes the mark. After a crash SQLite takes every whole transaction
// from the log, and cuts a torn end. A kill at any moment loses nothing that was acknowledged, and leaves no
// half of a batch. A reader of the feed sees only records that are durable, so a
// cursor never leads to another record after a crash.
//
// A write that fails for want of room is a [journal.ErrFull] and can be tried again.
// A failed sync cannot be tried again, because nobody knows what is on disk: open the
// store again.
package sqlite
