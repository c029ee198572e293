package redis

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/intelliparadigm/haiku/cache"
)

// Entry is one part of a write. Its key is any text, where it is the caller's
// business to keep tenants apart. Its value is no longer than
// Options.MaxValueBytes. A TTL of 0 means Options.MaxTTL, which also bounds it,
// and a negative one makes the write refused. It has 64 tags at most. Where one
// entry of a write names versions, all have to.
type Entry = cache.Entry

var _ cache.Shared = (*Store)(nil)

// A record is what Redis holds for an entry; the scripts know these offsets.
//
//	0   magic          4 bytes
//	4   checksum       CRC-32C of the key and of the record from 8 on
//	8   epoch          8, little-endian like all numbers
//	16  write          8, the random number of the write
//	24  value length   4
//	28  tags           1
//	29  slot, version  2 and 8 for each tag
//	    value
const (
	magic       = "HKc1"
	fixedBytes  = 29
	tagBytes    = 2 + 8
	maxTags     = 64
	checksumEnd = 8
)

// maxRecordBytes is the length of the longest record with values up to n bytes.
func maxRecordBytes(n int) int { return fixedBytes + maxTags*tagBytes + n }

// writeID tells writes apart.
type writeID struct{ epoch, random uint64 }

// tagVersion is the version of a slot; 0 is none.
type tagVersion struct {
	slot    uint16
	version uint64
}

// appendTo appends t as it stands in records; the hash of versions has the same
// bytes as field and value.
func (t tagVersion) appendTo(dst []byte) []byte {
	return append(append(dst, t.slotBytes()...), t.versionBytes()...)
}

func (t tagVersion) slotBytes() []byte    { return binary.LittleEndian.AppendUint16(nil, t.slot) }
func (t tagVersion) versionBytes() []byte { return binary.LittleEndian.AppendUint64(nil, t.version) }

// slotOf hashes a tag to the number of its version. All processes must agree.
func slotOf(tag string) uint16 {
	sum := crc32.Checksum([]byte(tag), castagnoli())
	return uint16(sum) ^ uint16(sum>>16)
}

func slotsOf(tags []string) []uint16 {
	slots := make([]uint16, len(tags))
	for i, tag := range tags {
		slots[i] = slotOf(tag)
	}
	return slots
}

// castagnoli returns the polynomial that processors have an instruction for;
// the table behind it is made once, by the library.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// appendHead appends the record of an entry up to its value.
func appendHead(dst []byte, id writeID, key string, tags []tagVersion, value []byte) []byte {
	begin := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, id.epoch)
	dst = binary.LittleEndian.AppendUint64(dst, id.random)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(value)))
	dst = append(dst, byte(len(tags)))
	for _, tag := range tags {
		dst = tag.appendTo(dst)
	}
	head := dst[begin:]
	binary.LittleEndian.PutUint32(head[len(magic):], checksum(key, head[checksumEnd:], value))
	return dst
}

func checksum(key string, head, value []byte) uint32 {
	table := castagnoli()
	sum := crc32.Update(crc32.Checksum([]byte(key), table), table, head)
	return crc32.Update(sum, table, value)
}

// decode reads the record found under key; value is a part of it. It trusts no
// byte: ok is false for what is torn, foreign, or the record of another key.
func decode(key string, record []byte) (id writeID, value []byte, ok bool) {
	if len(record) < fixedBytes || string(record[:len(magic)]) != magic {
		return id, nil, false
	}
	head := fixedBytes + tagBytes*int(record[28])
	if len(record) < head || uint64(len(record)-head) != uint64(binary.LittleEndian.Uint32(record[24:])) {
		return id, nil, false
	}
	value = record[head:]
	if checksum(key, record[checksumEnd:head], value) != binary.LittleEndian.Uint32(record[len(magic):]) {
		return id, nil, false
	}
	return writeID{binary.LittleEndian.Uint64(record[8:]), binary.LittleEndian.Uint64(record[16:])}, value, true
}
