package durable

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weirhq/weir/store"
)

// recordVersion is the first byte of a record.
const recordVersion = 1

// maxRecordAhead is the most permits that a record can be ahead.
const maxRecordAhead = 1e15

// errMalformed says that bytes are not a record.
var errMalformed = errors.New("weir: not a record of a durable limit")

// A record says what was granted and, ahead, how many permits may have been granted since: whoever reads it must take them for
// granted at the moment of reading, which is the latest at which they can have been. Its binary form is the version, ahead,
// and the state in the form of package store.

func encodeRecord(state *store.Record, ahead int64) []byte {
	b := make([]byte, 0, 128)
	b = append(b, recordVersion)
	b = binary.AppendUvarint(b, uint64(ahead))
	b, _ = state.AppendBinary(b)
	return b
}

func decodeRecord(b []byte) (state *store.Record, ahead int64, err error) {
	if len(b) == 0 || b[0] != recordVersion {
		return nil, 0, errMalformed
	}
	n, size := binary.Uvarint(b[1:])
	if size <= 0 || n > maxRecordAhead {
		return nil, 0, errMalformed
	}
	state, err = store.ParseRecord(b[1+size:])
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return state, int64(n), nil
}
