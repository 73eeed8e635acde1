package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/kern-run/kern/internal/journal"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A conn is one connection to the file, for one goroutine at a time. It does not use
// database/sql, because its pool and conversions cost as much as the statements.
type conn struct {
	c    driver.Conn
	kept []*stmt
}

func dial(file, pragmas string) (*conn, error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	p := filepath.ToSlash(abs)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // a drive letter
	}
	connector, err := sqlite.NewConnector((&url.URL{Scheme: "file", Path: p}).String() + "?_error_rc=1")
	if err != nil {
		return nil, err
	}
	dc, err := connector.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	c := &conn{c: dc}
	if err := c.run(pragmas); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close closes the connection and its kept statements, because SQLite keeps the file
// open until the last statement is closed.
func (c *conn) close() error {
	var err error
	for _, s := range c.kept {
		err = errors.Join(err, s.close())
	}
	c.kept = nil
	return errors.Join(err, c.c.Close())
}

// run executes statements that return no rows.
func (c *conn) run(sql string) error {
	s, err := c.prepare(sql)
	if err != nil {
		return err
	}
	return errors.Join(s.exec(), s.close())
}

// number returns the first column of the only row of a query.
func (c *conn) number(sql string) (int64, error) {
	s, err := c.prepare(sql)
	if err != nil {
		return 0, err
	}
	n, err := s.number()
	return n, errors.Join(err, s.close())
}

// A stmt is a prepared statement.
type stmt struct {
	s    driver.Stmt
	exe  driver.StmtExecContext
	que  driver.StmtQueryContext
	args []driver.NamedValue
}

func (c *conn) prepare(sql string) (*stmt, error) {
	s, err := c.c.Prepare(sql)
	if err != nil {
		return nil, err
	}
	exe, ok1 := s.(driver.StmtExecContext)
	que, ok2 := s.(driver.StmtQueryContext)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("journal: the driver's statement is a %T", s)
	}
	return &stmt{s: s, exe: exe, que: que}, nil
}

// prepareAll prepares statements into the variables of the map. close closes them.
func (c *conn) prepareAll(all map[**stmt]string) error {
	for p, sql := range all {
		s, err := c.prepare(sql)
		if err != nil {
			return err
		}
		*p = s
		c.kept = append(c.kept, s)
	}
	return nil
}

func (s *stmt) close() error { return s.s.Close() }

func (s *stmt) bind(vals []driver.Value) []driver.NamedValue {
	s.args = s.args[:0]
	for i, v := range vals {
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return s.args
}

func (s *stmt) exec(vals ...driver.Value) error {
	_, err := s.exe.ExecContext(context.Background(), s.bind(vals))
	return err
}

func (s *stmt) query(vals ...driver.Value) (driver.Rows, error) {
	return s.que.QueryContext(context.Background(), s.bind(vals))
}

// row reads the first row of a query into dest. It reports whether a row exists.
func (s *stmt) row(dest []driver.Value, vals ...driver.Value) (bool, error) {
	rows, err := s.query(vals...)
	if err != nil {
		return false, err
	}
	err = rows.Next(dest)
	if err == io.EOF {
		return false, rows.Close()
	}
	return err == nil, errors.Join(err, rows.Close())
}

func (s *stmt) number(vals ...driver.Value) (int64, error) {
	var dest [1]driver.Value
	ok, err := s.row(dest[:], vals...)
	if err != nil {
		return 0, err
	}
	n, isInt := dest[0].(int64)
	if !ok || !isInt {
		return 0, errors.New("journal: a number is missing from the file")
	}
	return n, nil
}

// code returns SQLite's primary result code of an error, or -1.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return -1
}

// full reports whether err means that the disk is full. SQLite has another code for
// a full disk when it grows the index of the log, the file that ends in -shm.
func full(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_FULL || e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE)
}

// orDamage makes damage of an error with which SQLite says that the file is not what
// it wrote, or cannot be read.
func orDamage(err error) error {
	var d *journal.Damage
	if errors.As(err, &d) {
		return err
	}
	switch code(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR:
		return &journal.Damage{Why: "in " + file + ": it cannot be read: " + err.Error(), Err: err}
	}
	return err
}

// maxPath is the longest path that SQLite opens, without the ending of its other files.
const maxPath = 512 - len("-journal")

// tooLong explains the error of a path that SQLite cannot open because it is too long.
func tooLong(path string, err error) error {
	if code(err) != sqlite3.SQLITE_CANTOPEN || len(path) <= maxPath {
		return err
	}
	return fmt.Errorf("its path is too long: it has %d bytes, and SQLite opens %d; use a data directory with a shorter path", len(path), maxPath)
}
