// Package splitmix is a hash of 64 bits to 64 bits: good enough to draw from, and
// the same in every process.
package splitmix

// Mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014) after one step of its
// Weyl sequence: each bit of x changes about half of the result's.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
