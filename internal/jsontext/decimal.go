package jsontext

import (
	"bytes"
	"cmp"
	"strconv"
)

// A Decimal is a number in one form: 0.DIGITS times ten to the power of point. The
// digits neither begin nor end with 0. Zero has no digits.
type Decimal struct {
	negative bool
	digits   []byte
	point    int
}

// ParseDecimal reads a number that Check accepted under Strict. It appends the
// digits to buf, which the result keeps.
func ParseDecimal(buf, number []byte) Decimal {
	var d Decimal
	if number[0] == '-' {
		d.negative, number = true, number[1:]
	}
	i := countDigits(number)
	buf = append(buf, number[:i]...)
	d.point, number = i, number[i:]
	if len(number) > 0 && number[0] == '.' {
		i = 1 + countDigits(number[1:])
		buf = append(buf, number[1:i]...)
		number = number[i:]
	}
	if len(number) > 0 {
		e, _ := strconv.Atoi(string(number[1:])) // Check bounds the exponent
		d.point += e
	}
	zeros := 0
	for zeros < len(buf) && buf[zeros] == '0' {
		zeros++
	}
	d.digits = bytes.TrimRight(buf[zeros:], "0")
	// Zero has one form, so -0 and 0e5 are the same number.
	if d.point -= zeros; len(d.digits) == 0 {
		return Decimal{}
	}
	return d
}

// Integer reports whether d is an integer.
func (d *Decimal) Integer() bool { return d.point >= len(d.digits) }

// Compare returns -1, 0 or 1 as d is less than, equal to or greater than e.
func (d *Decimal) Compare(e *Decimal) int {
	ds, es := d.sign(), e.sign()
	switch {
	case ds != es:
		return cmp.Compare(ds, es)
	// The first digit is not 0, so the larger power of ten decides.
	case d.point != e.point:
		return ds * cmp.Compare(d.point, e.point)
	}
	return ds * bytes.Compare(d.digits, e.digits)
}

func (d *Decimal) sign() int {
	switch {
	case len(d.digits) == 0:
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// Append appends the one text form of d. The form has no exponent if that adds at
// most 20 zeros behind the digits or 5 before them. Otherwise it is D.DDDeN.
func (d *Decimal) Append(out []byte) []byte {
	const zeros = "00000000000000000000"
	if len(d.digits) == 0 {
		return append(out, '0')
	}
	if d.negative {
		out = append(out, '-')
	}
	n, p := len(d.digits), d.point
	switch {
	case p >= n && p-n <= len(zeros):
		return append(append(out, d.digits...), zeros[:p-n]...)
	case p > 0 && p < n:
		return append(append(append(out, d.digits[:p]...), '.'), d.digits[p:]...)
	case p <= 0 && -p <= 5:
		return append(append(append(out, "0."...), zeros[:-p]...), d.digits...)
	}
	out = append(out, d.digits[0])
	if n > 1 {
		out = append(append(out, '.'), d.digits[1:]...)
	}
	return strconv.AppendInt(append(out, 'e'), int64(p-1), 10)
}
