package durable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// recordVersion is the first byte of what is kept under a name. Version 1 had no checksum and is not read.
const recordVersion = 2

// maxRecordAhead is the most permits that a record can be ahead.
const maxRecordAhead = 1e15

// errMalformed says that bytes are not a record.
var errMalformed = errors.New("weir: not a record of a durable limit")

// errOther says that a record is whole, and of another algorithm than its name says. All algorithms had one name before.
var errOther = fmt.Errorf("%w: it is of another algorithm than its name says", errMalformed)

// ErrDamaged is returned if a record is not what was written under its name: it was changed where it is stored.
var ErrDamaged = errors.New("weir: a record is damaged")

// What is kept under a name is the version, a checksum and a body. The checksum is the CRC-32C, big endian, of the length of the
// name, the name and the body, so that a record is not taken for that of another name.

const sealSize = 1 + crc32.Size

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a constant

// seal fills in the version and the checksum of b, whose body begins at sealSize.
func seal(name string, b []byte) []byte {
	b[0] = recordVersion
	binary.BigEndian.PutUint32(b[1:], checksum(name, b[sealSize:]))
	return b
}

func checksum(name string, body []byte) uint32 {
	head := make([]byte, 0, 128)
	head = binary.AppendUvarint(head, uint64(len(name)))
	head = append(head, name...)
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
}

// unseal returns the body of what was kept under a name. The error matches errMalformed or ErrDamaged.
func unseal(name string, b []byte) ([]byte, error) {
	switch {
	case len(b) == 0:
		return nil, errMalformed
	case b[0] == 1:
		return nil, fmt.Errorf("%w: it has version 1, which is not read, as it has no checksum", errMalformed)
	case b[0] != recordVersion || len(b) < sealSize:
		return nil, fmt.Errorf("%w: its first byte is %d, not %d", ErrDamaged, b[0], recordVersion)
	}
	body := b[sealSize:]
	if want, got := binary.BigEndian.Uint32(b[1:]), checksum(name, body); got != want {
		return nil, fmt.Errorf("%w: its checksum is %08x, and that of what it says %08x", ErrDamaged, want, got)
	}
	return body, nil
}

// CheckValue returns an error that matches [ErrDamaged] if a value is not what an owner wrote under the name. An [Engine] that
// can leave calls it for what it reads, so that another node with a healthy disk takes over.
func CheckValue(name string, value []byte) error {
	_, err := unseal(name, value)
	return err
}

// The body of a record says what was taken and, ahead, how many permits may have been taken since: a reader must take them
// for granted at the moment of reading, which is the latest at which they can have been. It is ahead, and the state in the form
// of package store.

func encodeRecord(name string, state *store.Record, ahead int64) []byte {
	b := make([]byte, sealSize, 128)
	b = binary.AppendUvarint(b, uint64(ahead))
	b, _ = state.AppendBinary(b)
	return seal(name, b)
}

// decodeRecord reads what encodeRecord has written. It returns the state with errOther too. Other errors match errMalformed or
// ErrDamaged.
func decodeRecord(name string, value []byte) (state *store.Record, ahead int64, err error) {
	b, err := unseal(name, value)
	if err != nil {
		return nil, 0, err
	}
	n, size := binary.Uvarint(b)
	if size <= 0 || n > maxRecordAhead {
		return nil, 0, errMalformed
	}
	state, err = store.ParseRecord(b[size:])
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if of, _ := limits.CutPrefix(name); state.Limit().Algorithm() != of {
		return state, int64(n), errOther
	}
	return state, int64(n), nil
}

// recordKey is what the record of an algorithm is kept under.
func recordKey(policy, key string, a weir.Algorithm) string {
	return string(appendRecordKey(make([]byte, 0, 5+len(policy)+len(key)), policy, key, a))
}

// recordKeyOf is what the record of a charge is kept under.
func recordKeyOf(c *store.Charge) string { return recordKey(c.Policy, c.Key, c.Limit.Algorithm()) }

// recordPolicy is the policy of the key that a record is kept under.
func recordPolicy(name string) string {
	_, rest := limits.CutPrefix(name)
	length, rest, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return name
	}
	return rest[:n]
}

func appendRecordKey(b []byte, policy, key string, a weir.Algorithm) []byte {
	b = append(b, limits.Prefix(a)...)
	b = append(strconv.AppendInt(b, int64(len(policy)), 10), ':')
	return append(append(b, policy...), key...)
}
