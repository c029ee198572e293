package ring

import "unsafe"

// Allocator provides the memory of a ring. Alloc returns at least bytes bytes
// at an address that is a multiple of 64; Ring.Free hands the same slice to
// Free exactly once. Both may be called from several goroutines when rings
// share an allocator. Memory outside the Go heap must stay mapped until Free.
type Allocator interface {
	Alloc(bytes int) ([]byte, error)
	Free([]byte)
}

// HeapAllocator takes memory from the Go heap and leaves it to the collector.
type HeapAllocator struct{}

// Alloc returns zeroed memory aligned to a line of the layout.
func (HeapAllocator) Alloc(bytes int) ([]byte, error) {
	b := make([]byte, bytes+lineBytes-1)
	pad := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % lineBytes)
	return b[pad : pad+bytes : pad+bytes], nil
}

// Free does nothing: the collector takes the memory back.
func (HeapAllocator) Free([]byte) {}
