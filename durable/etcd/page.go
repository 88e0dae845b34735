package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"math"
	"os"
)

// The database of etcd is a file of bbolt: pages of a fixed size, of which the first two say in turns where the tree is. A page
// that belongs to the tree does not change as long as one of them refers to it. What is here reads the file itself, as bbolt ends
// the process when a page is not what it should be.

const (
	pageHead    = 16
	elementSize = 16
	metaSize    = 64
	bucketHead  = 16

	branchPage   = 0x01
	leafPage     = 0x02
	metaPage     = 0x04
	bucketFlag   = 0x01
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	maxPageSize  = 1 << 16
	maxTreeDepth = 64
)

var errPages = errors.New("the database of etcd is damaged")

var (
	native     = binary.NativeEndian               //nolint:gochecknoglobals // a constant
	castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a constant
)

// meta is what one of the first two pages says.
type meta struct {
	pageSize uint32
	root     uint64
	pages    uint64 // how many the file has at least
	tx       uint64 // the number of the transaction that has written it
}

// pages reads a database.
type pages struct {
	file  *os.File
	info  os.FileInfo // of the file, which grows before a page says so
	meta  meta
	metas int // how many of the two pages are in order
	seen  map[uint64]bool
	sum   uint32 // of all pages of the tree
	// entry is called for each entry of a bucket.
	entry func(bucket, key, value []byte) error
}

// readMeta finds the page that says where the tree is.
func (p *pages) readMeta() error {
	for at := range 2 {
		sizes := []int64{0}
		if at == 1 {
			sizes = []int64{4096, 8192, 16384, 32768, 65536, 2048, 1024}
			if p.metas > 0 {
				sizes = []int64{int64(p.meta.pageSize)}
			}
		}
		for _, offset := range sizes {
			if m, ok := p.metaAt(offset, uint64(at)); ok {
				p.metas++
				if p.metas == 1 || m.tx > p.meta.tx {
					p.meta = m
				}
				break
			}
		}
	}
	if p.metas < 2 { // one would do for bbolt, which then has an older state
		return fmt.Errorf("%w: one of its first two pages, or both", errPages)
	}
	return nil
}

func (p *pages) metaAt(offset int64, id uint64) (m meta, ok bool) {
	b := make([]byte, pageHead+metaSize)
	if _, err := p.file.ReadAt(b, offset); err != nil {
		return m, false
	}
	h := fnv.New64a()
	_, _ = h.Write(b[pageHead : pageHead+metaSize-8])
	own := b[pageHead:]
	m = meta{
		pageSize: native.Uint32(own[8:]), root: native.Uint64(own[16:]), pages: native.Uint64(own[40:]),
		tx: native.Uint64(own[48:]),
	}
	ok = native.Uint64(b) == id && native.Uint16(b[8:]) == metaPage && native.Uint32(own) == metaMagic &&
		native.Uint32(own[4:]) == metaVersion && native.Uint64(own[56:]) == h.Sum64() &&
		m.pageSize >= 512 && m.pageSize <= maxPageSize && m.pageSize&(m.pageSize-1) == 0
	return m, ok
}

// walk goes through the whole tree, and reports what is not as bbolt writes it.
func (p *pages) walk() error {
	if err := p.readMeta(); err != nil {
		return err
	}
	var err error
	if p.info, err = p.file.Stat(); err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	p.seen = map[uint64]bool{}
	return p.page(p.meta.root, nil, nil, nil, 0)
}

func (p *pages) wrong(id uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d, at %d: %s", errPages, id, id*uint64(p.meta.pageSize), fmt.Sprintf(format, args...))
}

// load reads a page with those that continue it.
func (p *pages) load(id uint64) ([]byte, error) {
	size := uint64(p.meta.pageSize)
	if id < 2 || id >= p.meta.pages || id >= math.MaxInt64/size || p.seen[id] {
		return nil, p.wrong(id, "it is beyond the end, or referred to twice")
	}
	p.seen[id] = true
	head := make([]byte, pageHead)
	if _, err := p.file.ReadAt(head, int64(id*size)); err != nil {
		return nil, p.wrong(id, "it cannot be read: %v", err)
	}
	more := uint64(native.Uint32(head[12:]))
	if native.Uint64(head) != id {
		return nil, p.wrong(id, "it says that it is page %d", native.Uint64(head))
	}
	if id+more >= p.meta.pages || int64((id+more)*size) > p.info.Size() {
		return nil, p.wrong(id, "it goes on beyond the end")
	}
	for i := range more {
		if p.seen[id+1+i] {
			return nil, p.wrong(id, "page %d belongs to another one, too", id+1+i)
		}
		p.seen[id+1+i] = true
	}
	b := make([]byte, (1+more)*size)
	if _, err := p.file.ReadAt(b, int64(id*size)); err != nil {
		return nil, p.wrong(id, "it cannot be read: %v", err)
	}
	return b, nil
}

// page goes through a page of the tree of a bucket, whose keys are from min up to before max, where they are known.
func (p *pages) page(id uint64, bucket, low, high []byte, depth int) error {
	if depth > maxTreeDepth {
		return p.wrong(id, "the tree is too deep")
	}
	b, err := p.load(id)
	if err != nil {
		return err
	}
	return p.elements(id, b, bucket, low, high, depth)
}

// element is an entry of a page.
type element struct {
	flags      uint32
	child      uint64
	key, value []byte
}

// parse returns the entries of a page, which stand one behind the other.
func (p *pages) parse(id uint64, b []byte) (all []element, leaf bool, err error) {
	kind, count := native.Uint16(b[8:]), int(native.Uint16(b[10:]))
	if kind != leafPage && kind != branchPage {
		return nil, false, p.wrong(id, "it has the type %#x", kind)
	}
	leaf = kind == leafPage
	next := pageHead + count*elementSize
	if next > len(b) || !leaf && count == 0 {
		return nil, false, p.wrong(id, "it has %d entries", count)
	}
	all = make([]element, 0, count)
	for i := range count {
		at := pageHead + i*elementSize
		h := b[at:]
		var e element
		var pos, keySize, valueSize uint64
		if leaf {
			e.flags = native.Uint32(h)
			pos, keySize, valueSize = uint64(native.Uint32(h[4:])), uint64(native.Uint32(h[8:])), uint64(native.Uint32(h[12:]))
		} else {
			pos, keySize, e.child = uint64(native.Uint32(h)), uint64(native.Uint32(h[4:])), native.Uint64(h[8:])
		}
		from := uint64(at) + pos
		if from != uint64(next) || from+keySize+valueSize > uint64(len(b)) || e.flags&^bucketFlag != 0 {
			return nil, false, p.wrong(id, "entry %d is not where it should be", i)
		}
		e.key, e.value = b[from:from+keySize], b[from+keySize:from+keySize+valueSize]
		next = int(from + keySize + valueSize)
		all = append(all, e)
	}
	p.sum = crc32.Update(p.sum, castagnoli, b[:next])
	return all, leaf, nil
}

func (p *pages) elements(id uint64, b, bucket, low, high []byte, depth int) error {
	all, leaf, err := p.parse(id, b)
	if err != nil {
		return err
	}
	for i := range all {
		e := &all[i]
		if i > 0 && bytes.Compare(all[i-1].key, e.key) >= 0 || low != nil && bytes.Compare(e.key, low) < 0 ||
			high != nil && bytes.Compare(e.key, high) >= 0 {
			return p.wrong(id, "entry %d is not in its order", i)
		}
		switch {
		case !leaf:
			end := high
			if i+1 < len(all) {
				end = all[i+1].key
			}
			err = p.page(e.child, bucket, e.key, end, depth+1)
		case e.flags&bucketFlag != 0:
			err = p.bucket(id, e, depth)
		case p.entry != nil:
			if wrong := p.entry(bucket, e.key, e.value); wrong != nil {
				err = p.wrong(id, "entry %d: %v", i, wrong)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket goes through a bucket, which has pages of its own, or is small and within this one.
func (p *pages) bucket(id uint64, e *element, depth int) error {
	if len(e.value) < bucketHead {
		return p.wrong(id, "the bucket %q is too short", e.key)
	}
	if root := native.Uint64(e.value); root != 0 {
		return p.page(root, e.key, nil, nil, depth+1)
	}
	inline := e.value[bucketHead:]
	if len(inline) < pageHead {
		return p.wrong(id, "the bucket %q is too short", e.key)
	}
	// What bbolt reads as numbers must be aligned; here it is bytes.
	return p.elements(id, inline, e.key, nil, nil, depth+1)
}
